#include "import/zip.h"

#include <gtest/gtest.h>
#include <zip.h>  // libzip, as an independent writer
#include <zlib.h>

#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/file.h"

namespace tk {
namespace {

std::span<const std::byte> bytes_of(const std::string& s) { return std::as_bytes(std::span(s)); }

template <typename F>
std::string error_of(F f) {
  try {
    f();
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}
bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}
std::string open_error(const std::string& archive) {
  return error_of([&] { Zip::parse(bytes_of(archive), "x.zip"); });
}

// An archive of one entry made by hand, every field open to lies.
struct Maker {
  std::string name = "m/a.txt", local_name = name, data = "hello", packed = data;
  std::uint16_t method = 0, flags = 0;
  bool zip64 = false, descriptor = false;
  std::string comment;

  template <typename T>
  static void put(std::string& out, T value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  std::string make() const {
    const auto crc = static_cast<std::uint32_t>(
        crc32(0, reinterpret_cast<const Bytef*>(data.data()), static_cast<uInt>(data.size())));
    const auto n_packed = static_cast<std::uint32_t>(packed.size());
    const auto n = static_cast<std::uint32_t>(data.size());
    std::string out;
    auto header = [&](bool central) {
      put(out, central ? 0x02014b50U : 0x04034b50U);
      if (central) put<std::uint16_t>(out, 20);
      put<std::uint16_t>(out, 20);
      put<std::uint16_t>(out, static_cast<std::uint16_t>(flags | (descriptor ? 8 : 0)));
      put(out, method);
      put<std::uint32_t>(out, 0);
      const bool later = descriptor && !central;
      put(out, later ? 0U : crc);
      put(out, zip64 ? 0xffffffffU : later ? 0U : n_packed);
      put(out, zip64 ? 0xffffffffU : later ? 0U : n);
      put(out, static_cast<std::uint16_t>(central ? name.size() : local_name.size()));
      put<std::uint16_t>(out, zip64 ? 4 + 8 * 3 : 0);
      if (central) {
        put<std::uint16_t>(out, 0);
        put<std::uint16_t>(out, 0);
        put<std::uint16_t>(out, 0);
        put<std::uint32_t>(out, 0);
        put<std::uint32_t>(out, zip64 ? 0xffffffffU : 0U);
      }
      out += central ? name : local_name;
      if (zip64) {
        put<std::uint16_t>(out, 1);
        put<std::uint16_t>(out, 24);
        put<std::uint64_t>(out, n);
        put<std::uint64_t>(out, n_packed);
        put<std::uint64_t>(out, 0);
      }
    };
    header(false);
    out += packed;
    if (descriptor) {
      put(out, 0x08074b50U);
      put(out, crc);
      put(out, n_packed);
      put(out, n);
    }
    const std::uint64_t start = out.size();
    header(true);
    const std::uint64_t size = out.size() - start, end64 = out.size();
    if (zip64) {
      put(out, 0x06064b50U);
      put<std::uint64_t>(out, 44);
      put<std::uint32_t>(out, 45);
      put<std::uint64_t>(out, 0);
      put<std::uint64_t>(out, 1);
      put<std::uint64_t>(out, 1);
      put(out, size);
      put(out, start);
      put(out, 0x07064b50U);
      put<std::uint32_t>(out, 0);
      put(out, end64);
      put<std::uint32_t>(out, 1);
    }
    put(out, 0x06054b50U);
    put<std::uint32_t>(out, 0);
    put<std::uint16_t>(out, 1);
    put<std::uint16_t>(out, 1);
    put(out, static_cast<std::uint32_t>(size));
    put(out, zip64 ? 0xffffffffU : static_cast<std::uint32_t>(start));
    put(out, static_cast<std::uint16_t>(comment.size()));
    return out + comment;
  }
};

std::string deflated(const std::string& data) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, data.size()), '\0');
  stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(data.data()));
  stream.avail_in = static_cast<uInt>(data.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(out.size() - stream.avail_out);
  deflateEnd(&stream);
  return out;
}

TEST(Zip, ReadsWhatLibzipWrites) {
  const std::string path = cat(::testing::TempDir(), "/tk_zip_test.zip");
  const std::string big(300000, 'x'), small = "small";
  zip_t* out = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, nullptr);
  ASSERT_NE(out, nullptr);
  auto add = [&](const char* name, const std::string& data, int method) {
    const auto i = zip_file_add(out, name, zip_source_buffer(out, data.data(), data.size(), 0), 0);
    ASSERT_GE(i, 0);
    zip_set_file_compression(out, static_cast<zip_uint64_t>(i), method, 0);
  };
  add("m/big", big, ZIP_CM_DEFLATE);
  add("m/small", small, ZIP_CM_STORE);
  add("m/empty", "", ZIP_CM_STORE);
  zip_dir_add(out, "m/folder", 0);
  zip_set_archive_comment(out, "a comment", 9);
  ASSERT_EQ(zip_close(out), 0);

  const Zip zip = Zip::open(path);
  EXPECT_EQ(zip.entries().size(), 3U);
  const ZipEntry* entry = zip.find("m/big");
  ASSERT_NE(entry, nullptr);
  EXPECT_FALSE(entry->is_stored);
  EXPECT_EQ(zip.read(*entry), big);
  entry = zip.find("m/small");
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(zip.read(*entry), small);
  const auto there = zip.stored(*entry);
  EXPECT_EQ(std::memcmp(there.data(), small.data(), small.size()), 0);
  EXPECT_EQ(zip.read(*zip.find("m/empty")), "");
  EXPECT_EQ(zip.find("m/folder/"), nullptr);
  EXPECT_EQ(zip.find("absent"), nullptr);
  std::remove(path.c_str());
}

TEST(Zip, ReadsEveryFormOfHeader) {
  for (bool zip64 : {false, true})
    for (bool descriptor : {false, true})
      for (bool deflate : {false, true}) {
        Maker maker;
        maker.zip64 = zip64;
        maker.descriptor = descriptor;
        maker.comment = "PK\5\6 in a comment, and more than an end record long";
        if (deflate) {
          maker.method = 8;
          maker.packed = deflated(maker.data);
        }
        const std::string archive = maker.make();
        const Zip zip = Zip::parse(bytes_of(archive), "x.zip");
        ASSERT_EQ(zip.entries().size(), 1U);
        EXPECT_EQ(zip.read(*zip.find("m/a.txt")), "hello") << zip64 << descriptor << deflate;
      }
}

TEST(Zip, NotAnArchive) {
  EXPECT_TRUE(has(open_error(""), "TK0130"));
  EXPECT_TRUE(has(open_error("version https://git-lfs.github.com/spec/v1"), "TK0130"));
  const std::string whole = Maker().make();
  for (std::size_t n = 0; n < whole.size(); ++n)
    EXPECT_TRUE(has(open_error(whole.substr(0, n)), "TK0130")) << n;
}

TEST(Zip, ContradictionsInTheDirectory) {
  Maker maker;
  maker.local_name = "m/b.txt";
  EXPECT_TRUE(has(open_error(maker.make()), "another name"));
  for (const char* name : {"../a.txt", "/m/a.tx", "m/../..", "m\\a.txt", "m/a\n.tx", ""}) {
    maker.name = maker.local_name = name;
    EXPECT_TRUE(has(open_error(maker.make()), "TK0131")) << name;
  }
  const std::string whole = Maker().make();
  const std::size_t central = whole.find("PK\1\2"), end = whole.find("PK\5\6");
  auto patched = [&](std::size_t at, std::uint32_t value) {
    std::string bad = whole;
    std::memcpy(bad.data() + at, &value, 4);
    return open_error(bad);
  };
  EXPECT_TRUE(has(patched(end + 16, 0x7fffffff), "TK0131"));       // offset of the directory
  EXPECT_TRUE(has(patched(end + 10, 0x0000ffff), "cannot list"));  // entries
  EXPECT_TRUE(has(patched(central + 42, 3), "no header"));         // offset of the entry
  EXPECT_TRUE(has(patched(central + 20, 4), "yet holds 5"));       // packed size
  EXPECT_TRUE(has(patched(central + 20, 0xfffffff0), "past the end"));
}

TEST(Zip, EntriesThatShareBytes) {
  std::string archive = Maker().make();
  const std::size_t central = archive.find("PK\1\2"), end = archive.find("PK\5\6");
  archive.insert(end, archive.substr(central, end - central));
  archive[end + (end - central) + 10] = 2;
  archive[end + (end - central) + 8] = 2;
  archive[end + (end - central) + 12] = static_cast<char>(2 * (end - central));
  EXPECT_TRUE(has(open_error(archive), "overlap")) << open_error(archive);
}

TEST(Zip, BombsAreRefusedBeforeInflating) {
  Maker maker;
  maker.method = 8;
  maker.data = std::string(100U << 20, '\0');
  maker.packed = deflated(maker.data);
  EXPECT_TRUE(has(open_error(maker.make()), "TK0133"));
  // A size that deflate cannot reach is a lie.
  std::string archive = [] {
    Maker small;
    small.method = 8;
    small.packed = deflated(small.data);
    return small.make();
  }();
  const std::uint32_t size = 1U << 20;
  std::memcpy(archive.data() + archive.find("PK\1\2") + 24, &size, 4);
  EXPECT_TRUE(has(open_error(archive), "TK0133"));
}

TEST(Zip, DamagedData) {
  Maker maker;
  maker.method = 8;
  maker.packed = deflated(maker.data);
  auto read_error = [](const std::string& archive) {
    return error_of([&] {
      const Zip zip = Zip::parse(bytes_of(archive), "x.zip");
      zip.read(zip.entries().front());
    });
  };
  std::string archive = maker.make();
  const std::size_t central = archive.find("PK\1\2");
  for (std::uint32_t size : {0U, 4U, 6U, 1000U}) {
    std::memcpy(archive.data() + central + 24, &size, 4);
    EXPECT_TRUE(has(read_error(archive), "TK0134")) << size;
  }
  maker.packed = "\xff\xff\xff";
  EXPECT_TRUE(has(read_error(maker.make()), "TK0134"));
  maker.packed = deflated("hallo");
  EXPECT_TRUE(has(read_error(maker.make()), "checksum"));
  Maker stored;
  stored.packed = "hallo";
  EXPECT_TRUE(has(read_error(stored.make()), "checksum"));
}

TEST(Zip, WhatCannotBeReadIsNamed) {
  auto read_error = [](const Maker& maker) {
    const std::string archive = maker.make();
    return error_of([&] {
      const Zip zip = Zip::parse(bytes_of(archive), "x.zip");
      zip.read(zip.entries().front());
    });
  };
  Maker maker;
  maker.method = 12;
  EXPECT_TRUE(has(read_error(maker), "method 12")) << read_error(maker);
  std::string huge = maker.make();  // nothing is allocated for it: the fuzzer found this one
  std::memset(huge.data() + huge.find("PK\1\2") + 24, 0x7f, 4);
  EXPECT_TRUE(has(error_of([&] {
                    const Zip zip = Zip::parse(bytes_of(huge), "x.zip");
                    zip.read(zip.entries().front());
                  }),
                  "method 12"));
  maker.method = 0;
  maker.flags = 1;
  EXPECT_TRUE(has(read_error(maker), "encrypted"));
  std::string parts = Maker().make();
  parts[parts.find("PK\5\6") + 4] = 1;
  EXPECT_TRUE(has(open_error(parts), "several parts"));
}

TEST(Zip, TheSharedModels) {
  const char* set = std::getenv("TOKAMAK_SHARED");
  const std::filesystem::path shared = set != nullptr ? set : TK_SOURCE_DIR "/../shared";
  const std::filesystem::path stored = shared / "models/llama-gqa/model.pt2",
                              packed = shared / "models/large/llama3-70b.pt2";
  if (!std::filesystem::exists(stored) || !std::filesystem::exists(packed))
    GTEST_SKIP() << "no models in " << shared;
  const Zip small = Zip::open(stored);
  EXPECT_EQ(small.entries().size(), 32U);
  for (const ZipEntry& entry : small.entries()) {
    EXPECT_TRUE(entry.is_stored);
    EXPECT_EQ(small.read(entry).size(), entry.size);
  }
  EXPECT_EQ(small.stored(*small.find("model/data/weights/weight_0")).size(), 65536U);
  const Zip large = Zip::open(packed);
  EXPECT_EQ(large.entries().size(), 734U);
  EXPECT_EQ(large.read(*large.find("llama3-70b/models/model.json")).size(), 11366243U);
}

}  // namespace
}  // namespace tk
