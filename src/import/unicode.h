// UTF-8 and the few facts of Unicode that tokenizers ask for. Everything here but valid_utf8 takes
// valid UTF-8. Properties and normal forms come from ICU (of Debian 12: Unicode 15).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tk::unicode {

// The text with each maximal part that is not UTF-8 replaced by U+FFFD, as the WHATWG's decoder,
// Python's errors="replace" and Rust's from_utf8_lossy do.
std::string valid_utf8(std::string_view bytes);

// The code point at `at`, which moves to the next.
char32_t next(std::string_view text, std::size_t& at);
// The code point before `at` (at > 0), which moves to its start.
char32_t previous(std::string_view text, std::size_t& at);
void append(std::string& out, char32_t c);
std::string to_utf8(char32_t c);

bool is_space(char32_t c);        // White_Space
bool is_numeric(char32_t c);      // Nd, Nl, No
bool is_punctuation(char32_t c);  // P*, and the ASCII signs that are S*
bool is_mark(char32_t c);         // M*, of Unicode 9
bool is_word(char32_t c);         // \w of UTS 18: Alphabetic, M, Nd, Pc, Join_Control

enum class Form { nfc, nfd, nfkc, nfkd };  // of Unicode 9
std::string normalize(std::string_view text, Form form);
// Code point by code point: no final sigma, no language.
std::string lowercase(std::string_view text);

// Byte-level tokenizers write each byte as one printable character: those of Latin-1 that are
// printable as themselves, the other 68 from U+0100 up (GPT-2, encoder.py, bytes_to_unicode).
std::string bytes_to_characters(std::string_view bytes);
// The way back; false when a character stands for no byte.
bool characters_to_bytes(std::string_view text, std::string* bytes);

}  // namespace tk::unicode
