#include "cpu/runner.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "base/error.h"
#include "cpu/kernels/common.h"
#include "cpu/pack.h"
#include "cpu/rows.h"

namespace tk {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

void at_least(std::int64_t value, std::int64_t least, const char* name) {
  if (value < least)
    throw UserError("TK0518", cat(name, " must be ", least, " or more, got ", value));
}

void check_buckets(std::span<const std::int64_t> buckets) {
  for (std::size_t i = 0; i < buckets.size(); ++i)
    at_least(buckets[i], i == 0 ? 1 : buckets[i - 1] + 1, "a bucket");
}

RunnerOptions checked(RunnerOptions o) {
  at_least(o.threads, 0, "the number of threads");
  if (o.threads > 1024)
    throw UserError("TK0518", cat("the number of threads must be 1024 or less, got ", o.threads));
  at_least(o.n_blocks, 0, "the number of cache blocks");
  at_least(o.cache_bytes, 0, "the size of the cache");
  at_least(o.max_batch, 1, "the largest batch");
  at_least(o.max_len, 0, "the largest length");
  at_least(o.max_tokens, 1, "the largest prefill run");
  check_buckets(o.buckets);
  if (o.threads == 0)
    o.threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return o;
}

// TOKAMAK_PACK=0 leaves weights as they lie in their files.
bool packing_wanted() {
  const char* v = std::getenv("TOKAMAK_PACK");
  return v == nullptr || std::string_view(v) != "0";
}

// TOKAMAK_TARGET confines the kernels to one instruction set of this machine.
void choose_target() {
  const char* name = std::getenv("TOKAMAK_TARGET");
  if (name == nullptr || *name == '\0' || kernels::force_target(name)) return;
  std::string list;
  const kernels::TargetList targets = kernels::available_targets();
  for (int i = 0; i < targets.size; ++i) list += cat(i > 0 ? ", " : "", targets.names[i]);
  kernels::force_target(nullptr);
  throw UserError("TK1801", cat("TOKAMAK_TARGET=", name, " is no instruction set of this machine"))
      .note(cat("here are: ", list))
      .help("unset it to use the best");
}

std::int64_t length_limit(const EngineModel& m, const RunnerOptions& o) {
  if (o.max_len > 0) {
    if (m.max_positions > 0 && o.max_len > m.max_positions)
      throw UserError("TK0518", cat("the model knows ", m.max_positions, " positions, a length of ",
                                    o.max_len, " was asked for"));
    return o.max_len;
  }
  constexpr std::int64_t usual = 4096;
  return m.max_positions > 0 ? std::min(m.max_positions, usual) : usual;
}

[[noreturn]] void not_cached(const std::string& what) {
  throw UserError("TK0519", cat("this graph cannot be served: ", what))
      .help("serving needs the cached, token-flat form that `tokamak optimize` makes");
}

constexpr std::string_view input_names[] = {"input_ids",   "position_ids", "slot_mapping",
                                            "block_table", "query_lens",   "kv_lens",
                                            "logit_rows"};

void check_graph(const Graph& g) {
  for (const auto& v : g.inputs())
    if (std::find(std::begin(input_names), std::end(input_names), v->name) == std::end(input_names))
      not_cached(cat("it has an input '", v->name, "'"));
  if (g.find_input("input_ids") == nullptr) not_cached("it has no input 'input_ids'");
  if (g.states().empty()) not_cached("it has no cache");
  if (g.outputs().empty()) not_cached("it has no output");
  const Type& logits = g.outputs()[0]->type;
  if (logits.rank() != 2 || !logits.dim(1).is_const())
    not_cached(cat("its output is ", logits.str(), ", not logits [rows, vocabulary]"));
  if (!kernel_float(logits.dtype)) not_cached(cat("its logits are ", name_of(logits.dtype)));
}

SymEnv state_env(std::int64_t n_blocks, std::int64_t block_size) {
  return {{"NB", n_blocks}, {"bs", block_size}};
}

// Bytes of one block in all caches.
std::int64_t block_bytes(const Graph& g, std::int64_t block_size) {
  std::int64_t bytes = 0;
  for (const auto& v : g.states()) {
    const Dims one = concrete(v->type.shape, state_env(1, block_size));
    if (one.size() < 2 || one[0] != 1 || one[1] != block_size)
      not_cached(
          cat("its cache '", v->name, "' is ", v->type.str(), ", not [NB, ", block_size, ", ...]"));
    bytes += one.numel() * static_cast<std::int64_t>(size_of(v->type.dtype));
  }
  return bytes;
}

std::int64_t machine_bytes() {
  return static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

std::int64_t count_blocks(const EngineModel& m, const RunnerOptions& o) {
  const std::int64_t each = block_bytes(m.prefill, m.block_size);
  std::int64_t n = o.n_blocks;
  if (n == 0) n = o.cache_bytes / each;
  if (n == 0 && o.cache_bytes == 0)
    n = o.max_batch * blocks_for(length_limit(m, o), m.block_size) + 1;
  n = std::min<std::int64_t>(n, INT32_MAX);
  if (n > machine_bytes() / each)
    throw UserError("TK0514", cat("a KV cache of ", n, " blocks needs ", n * each >> 20,
                                  " MiB, the machine has ", machine_bytes() >> 20))
        .help(cat("one block holds ", m.block_size, " tokens in ", each >> 10,
                  " KiB; ask for fewer, or for a smaller batch or length"));
  return n;
}

// Memory that reads as zero and is taken from the machine page by page when touched: an unused
// part of the pool costs nothing.
Tensor lazy_zeros(const Type& type, const SymEnv& env) {
  Tensor t;
  t.dtype = type.dtype;
  t.shape = concrete(type.shape, env);
  t.strides = contiguous_strides(t.shape);
  const auto bytes = static_cast<std::size_t>(std::max<std::int64_t>(t.bytes(), 1));
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED)
    throw UserError("TK0514", cat("no memory for a cache of ", bytes >> 20, " MiB"))
        .help("ask for fewer blocks, or for a smaller batch or length");
  t.data = p;
  t.owner = std::shared_ptr<void>(p, [bytes](void* q) { munmap(q, bytes); });
  return t;
}

// Token ids must be below this: the logits' width, and the rows of every table that they index.
std::int64_t vocabulary(const Graph& g) {
  std::int64_t n = g.outputs()[0]->type.dim(1).value();
  const Value* ids = g.find_input("input_ids");
  for (const Use& use : ids->uses) {
    if (use.node == nullptr || !use.node->is("aten.embedding") || use.index != 1) continue;
    const Sym& rows = use.node->in(0)->type.dim(0);
    if (rows.is_const()) n = std::min(n, rows.value());
  }
  return n;
}

template <typename T>
T* input_of(const Bound& b, std::string_view name) {
  const int id = b.plan.plan->input_id(name);
  return id < 0 ? nullptr : b.plan.views[at(id)].as<T>();
}

}  // namespace

TensorView Logits::row(std::int64_t i) const {
  TensorView v = table;
  v.data = static_cast<std::byte*>(table.data) +
           at(rows[at(i)] * table.strides[0]) * size_of(table.dtype);
  v.shape = {table.shape[1]};
  v.strides = {table.strides[1]};
  return v;
}

namespace {

// Fused for an NPU, prefill may skip the cache: then it knows nothing of tokens from before.
bool attends_to_own_keys(const Graph& prefill) {
  for (const Node* n : nodes(prefill)) {
    const int table = n->op->parsed().tensor_index("block_table");
    if (n->is("npu.npu_fused_infer_attention_score_v2") && n->in(table) == nullptr) return true;
  }
  return false;
}

}  // namespace

Runner::Runner(EngineModel model, const RunnerOptions& options)
    : options_(checked(options)),
      prefill_buckets_(std::move(model.prefill_buckets)),
      block_size_(model.block_size),
      pool_([&] {
        if (model.block_size < 1)
          throw UserError("TK0518",
                          cat("the block size must be 1 or more, got ", model.block_size));
        choose_target();
        check_graph(model.prefill);
        check_graph(model.decode);
        return BlockPool(count_blocks(model, options_));
      }()),
      team_(options_.team != nullptr ? options_.team : std::make_shared<Team>(options_.threads)) {
  check_buckets(prefill_buckets_);
  max_len_ = std::min(length_limit(model, options_), (pool_.size() - 1) * block_size_);
  vocab_ = std::min(vocabulary(model.prefill), vocabulary(model.decode));
  const SymEnv env = state_env(pool_.size(), block_size_);
  std::map<std::string, Tensor, std::less<>> by_name;
  for (const auto& v : model.prefill.states()) {
    by_name[v->name] = lazy_zeros(v->type, env);
    caches_.push_back(by_name[v->name]);
    cache_bytes_ += caches_.back().bytes();
  }
  std::vector<Tensor> decode_caches;
  for (const auto& v : model.decode.states()) {
    const auto it = by_name.find(v->name);
    if (it == by_name.end())
      not_cached(cat("decode has a cache '", v->name, "' that prefill has not"));
    decode_caches.push_back(it->second);
  }
  if (options_.check) {
    std::vector<std::int32_t> all;
    for (std::int32_t b = 1; b < pool_.size(); ++b) all.push_back(b);
    poison(all);
  }
  whole_prompts_ = attends_to_own_keys(model.prefill);
  ConstantPool constants;
  auto memory = std::make_shared<EngineMemory>();
  PackConstant pack;
  std::shared_ptr<WeightPacker> packer;
  if (!options_.engine.prepare.reference_only && packing_wanted()) {
    packer = options_.packer != nullptr
                 ? options_.packer
                 : std::make_shared<WeightPacker>(team_.get(), model.weights);
    pack = [packer](const ConstantInput& input) { return (*packer)(input); };
  }
  prefill_ =
      std::make_unique<Engine>(make_plan(std::move(model.prefill), model.weights, &constants, pack),
                               caches_, team_.get(), memory, options_.engine);
  decode_ =
      std::make_unique<Engine>(make_plan(std::move(model.decode), model.weights, &constants, pack),
                               decode_caches, team_.get(), memory, options_.engine);
  if (options_.keep_packed && packer != nullptr) packer->save();
  options_.packer.reset();  // only what is used stays in memory
}

Runner::~Runner() = default;

SeqId Runner::open() {
  sequences_[next_id_] = {};
  return next_id_++;
}

void Runner::close(SeqId seq) {
  const auto it = sequences_.find(seq);
  TK_CHECK(it != sequences_.end(), "no sequence ", seq);
  if (options_.check) poison(it->second.blocks);
  pool_.release(it->second.blocks);
  sequences_.erase(it);
}

std::int64_t Runner::length(SeqId seq) const {
  const auto it = sequences_.find(seq);
  TK_CHECK(it != sequences_.end(), "no sequence ", seq);
  return it->second.length;
}

std::span<const std::int32_t> Runner::blocks(SeqId seq) const {
  const auto it = sequences_.find(seq);
  TK_CHECK(it != sequences_.end(), "no sequence ", seq);
  return it->second.blocks;
}

void Runner::truncate(SeqId seq, std::int64_t length) {
  Sequence& s = sequences_.at(seq);
  TK_CHECK(length >= 0 && length <= s.length, "truncate ", s.length, " to ", length);
  s.length = length;
  const std::int64_t keep = blocks_for(length, block_size_);
  const std::span<const std::int32_t> freed(s.blocks.begin() + keep, s.blocks.end());
  if (options_.check) poison(freed);
  pool_.release(freed);
  s.blocks.resize(at(keep));
}

std::int64_t Runner::bucket(std::int64_t batch) const {
  if (!options_.buckets.empty()) {
    const auto it = std::lower_bound(options_.buckets.begin(), options_.buckets.end(), batch);
    return it == options_.buckets.end() ? batch
                                        : std::min(*it, std::max(batch, options_.max_batch));
  }
  std::int64_t b = batch <= 4 ? batch : 8;
  while (b < batch) b *= 2;
  return std::max(batch, std::min(b, options_.max_batch));
}

std::int64_t Runner::table_width(std::int64_t tokens) const {
  // In powers of two, so that growing sequences bind rarely.
  std::int64_t width = 1;
  while (width < blocks_for(tokens, block_size_)) width *= 2;
  return width;
}

void Runner::check_pieces(std::span<const Piece> pieces, Phase phase) {
  TK_CHECK(!pieces.empty(), "a run of nothing");
  ++n_runs_;
  for (const Piece& p : pieces) {
    const std::int64_t length = this->length(p.seq);
    const auto n = static_cast<std::int64_t>(p.tokens.size());
    TK_CHECK(std::exchange(sequences_.at(p.seq).last_run, n_runs_) != n_runs_, "sequence ", p.seq,
             " twice in one run");
    TK_CHECK(phase == Phase::prefill || n == 1, "decode takes one token a sequence, got ", n);
    if (n == 0) throw UserError("TK0511", "there is no token to run: the prompt is empty");
    if (length + n > max_len_)
      throw UserError("TK0512", cat("a sequence of ", length + n, " tokens is longer than ",
                                    max_len_, ", the most that is served here"))
          .note(cat("it has ", length, " tokens, ", n, " are to be added"))
          .help("shorten the prompt or the answer, or raise the length limit if the model allows");
    if (phase == Phase::prefill && whole_prompts_ && length > 0)
      throw UserError(
          "TK0515", cat("this prefill graph takes whole prompts: sequence ", p.seq, " has ", length,
                        " tokens in the cache already, and its attention would not see them"))
          .help(
              "raise the limit of tokens of one run above the prompt's length, or optimise "
              "without the moves attend_own_keys and attend_own_latent");
    for (std::int64_t i = 0; i < n; ++i)
      if (p.tokens[at(i)] < 0 || p.tokens[at(i)] >= vocab_)
        throw UserError("TK0510", cat("token id ", p.tokens[at(i)], " at place ", i,
                                      " is outside the vocabulary of ", vocab_, " tokens"));
  }
}

// All or nothing: the pool is asked before any table grows.
void Runner::allocate(std::span<const Piece> pieces) {
  std::int64_t need = 0;
  const auto missing = [&](const Piece& p) {
    const Sequence& s = sequences_.at(p.seq);
    return std::max<std::int64_t>(
        0, blocks_for(s.length + static_cast<std::int64_t>(p.tokens.size()), block_size_) -
               static_cast<std::int64_t>(s.blocks.size()));
  };
  for (const Piece& p : pieces) need += missing(p);
  if (need == 0) return;
  std::vector<std::int32_t> blocks;
  pool_.allocate(need, &blocks);
  auto next = blocks.begin();
  for (const Piece& p : pieces) {
    const std::int64_t n = missing(p);
    sequences_.at(p.seq).blocks.insert(sequences_.at(p.seq).blocks.end(), next, next + n);
    next += n;
  }
}

void Runner::fill(const Bound& bound, std::span<const Piece> pieces, LogitRows rows) {
  auto* ids = input_of<std::int64_t>(bound, "input_ids");
  auto* positions = input_of<std::int64_t>(bound, "position_ids");
  auto* slots = input_of<std::int64_t>(bound, "slot_mapping");
  auto* table = input_of<std::int32_t>(bound, "block_table");
  auto* query_lens = input_of<std::int32_t>(bound, "query_lens");
  auto* kv_lens = input_of<std::int32_t>(bound, "kv_lens");
  auto* logit_rows = input_of<std::int64_t>(bound, "logit_rows");
  const std::int64_t width = bound.plan.env.at("MB");
  const std::int64_t tokens = bound.plan.env.at("T");
  const std::int64_t sequences = bound.plan.env.at("B");
  std::int64_t t = 0;
  const auto token = [&](std::int64_t id, std::int64_t position, std::int64_t slot) {
    ids[t] = id;
    if (positions != nullptr) positions[t] = position;
    if (slots != nullptr) slots[t] = slot;
    ++t;
  };
  logits_.rows.clear();
  for (std::int64_t b = 0; b < sequences; ++b) {
    std::int64_t keys = 0;
    std::int64_t n_blocks = 0;
    if (b < static_cast<std::int64_t>(pieces.size())) {
      const Piece& p = pieces[at(b)];
      const Sequence& s = sequences_.at(p.seq);
      std::int64_t position = s.length;
      for (const std::int64_t id : p.tokens) {
        token(id, position, slot_of(s.blocks, position, block_size_, p.seq));
        ++position;
      }
      keys = position;
      n_blocks = blocks_for(keys, block_size_);
      if (table != nullptr) std::copy_n(s.blocks.begin(), n_blocks, table + b * width);
      if (rows == LogitRows::last) logits_.rows.push_back(t - 1);
    } else {
      // Padding sees nothing, and is written to the null block, a slot each: operators of the NPU
      // have no slot that is left out.
      const std::int64_t end = b + 1 == sequences ? tokens : t + 1;
      while (t < end) token(0, 0, null_block * block_size_ + t % block_size_);
    }
    if (table != nullptr)
      std::fill(table + b * width + n_blocks, table + (b + 1) * width, null_block);
    if (query_lens != nullptr) query_lens[b] = static_cast<std::int32_t>(t);
    if (kv_lens != nullptr) kv_lens[b] = static_cast<std::int32_t>(keys);
  }
  if (rows == LogitRows::all)
    for (std::int64_t i = 0; i < t; ++i) logits_.rows.push_back(i);
  if (logit_rows == nullptr) return;
  const std::int64_t n_rows = bound.plan.env.at("R");
  for (std::int64_t r = 0; r < n_rows; ++r) {
    const bool live = r < static_cast<std::int64_t>(logits_.rows.size());
    logit_rows[r] = live ? logits_.rows[at(r)] : t - n_rows + r;
    if (live) logits_.rows[at(r)] = r;
  }
}

const Logits& Runner::run(std::span<const Piece> pieces, Phase phase, LogitRows rows) {
  check_pieces(pieces, phase);
  allocate(pieces);
  if (options_.check) check_slots(pieces);
  std::int64_t tokens = 0;
  std::int64_t most_keys = 1;
  for (const Piece& p : pieces) {
    const auto n = static_cast<std::int64_t>(p.tokens.size());
    tokens += n;
    most_keys = std::max(most_keys, length(p.seq) + n);
  }
  const auto batch = static_cast<std::int64_t>(pieces.size());
  // Decode is padded by sequences of a token each, prefill by one sequence of what is left over.
  std::int64_t padded = batch;
  std::int64_t padded_tokens = tokens;
  if (phase == Phase::decode) {
    padded = bucket(batch);
    padded_tokens = padded;
  } else if (const auto it = std::ranges::lower_bound(prefill_buckets_, tokens);
             it != prefill_buckets_.end()) {
    padded = batch + 1;
    padded_tokens = *it;
  }
  Engine& e = engine(phase);
  const auto start = std::chrono::steady_clock::now();
  sizes_.find("T")->second = padded_tokens;
  sizes_.find("B")->second = padded;
  sizes_.find("MB")->second = table_width(most_keys);
  sizes_.find("R")->second = rows == LogitRows::all ? padded_tokens : padded;
  sizes_.find("NB")->second = pool_.size();
  sizes_.find("bs")->second = block_size_;
  const Bound& bound = e.bound(sizes_);
  fill(bound, pieces, rows);
  LaunchTimes* times = times_ != nullptr || !on_run ? times_ : &own_times_;
  if (times != nullptr) {
    times->start.resize(bound.list.launches.size());
    times->end.resize(bound.list.launches.size());
  }
  e.run(bound, times);
  logits_.table = bound.plan.output(0);
  last_bound_ = &bound;
  if (options_.check) check_logits(pieces, rows);
  for (const Piece& p : pieces)
    sequences_.at(p.seq).length += static_cast<std::int64_t>(p.tokens.size());
  stats_ = {phase, tokens, batch, padded,
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()};
  if (on_run) on_run(bound, *times);
  return logits_;
}

// No block belongs to two sequences: then no two live tokens share a slot.
void Runner::check_slots(std::span<const Piece> pieces) const {
  std::unordered_map<std::int32_t, SeqId> owner;
  for (const auto& [id, s] : sequences_)
    for (const std::int32_t b : s.blocks) {
      TK_CHECK(b != null_block, "sequence ", id, " owns the null block");
      const auto [it, fresh] = owner.emplace(b, id);
      TK_CHECK(fresh, "block ", b, " belongs to sequences ", it->second, " and ", id);
    }
  TK_CHECK(static_cast<std::int64_t>(owner.size()) + pool_.n_free() == pool_.size() - 1,
           "blocks are lost");
  for (const Piece& p : pieces)
    TK_CHECK(length(p.seq) <= static_cast<std::int64_t>(blocks(p.seq).size()) * block_size_);
}

void Runner::check_logits(std::span<const Piece> pieces, LogitRows rows) const {
  std::int64_t end = 0;
  std::size_t piece = 0;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(logits_.rows.size()); ++i) {
    if (rows == LogitRows::last) {
      piece = at(i);
    } else {
      if (piece == pieces.size()) break;  // padding
      if (i == 0) end = static_cast<std::int64_t>(pieces[0].tokens.size());
      if (i == end && ++piece < pieces.size())
        end += static_cast<std::int64_t>(pieces[piece].tokens.size());
      if (piece == pieces.size()) break;
    }
    const TensorView row = logits_.row(i);
    for (std::int64_t j = 0; j < row.shape[0]; ++j)
      if (std::isnan(element(row, j)))
        throw UserError("TK0517", cat("the logits of sequence ", pieces[piece].seq,
                                      " hold NaN, at token id ", j))
            .help("weights that hold NaN or infinity do this; so does reading a freed cache block");
  }
}

void Runner::poison(std::span<const std::int32_t> blocks) {
  for (const Tensor& cache : caches_) {
    // All bits set is a NaN in f32, bf16 and f16.
    const auto bytes = at(cache.strides[0]) * size_of(cache.dtype);
    for (const std::int32_t b : blocks)
      std::memset(static_cast<std::byte*>(cache.data) + static_cast<std::size_t>(b) * bytes, 0xff,
                  bytes);
  }
}

}  // namespace tk
