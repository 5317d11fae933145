// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A model of PyTorch's exceptions.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <utility>

namespace c10 {

struct SourceLocation {
  const char* function;
  const char* file;
  uint32_t line;
};

class Error : public std::exception {
public:
  Error(SourceLocation, std::string with) : text(std::move(with)) {}
  const char* what() const noexcept override { return text.c_str(); }
  const char* what_without_backtrace() const noexcept { return text.c_str(); }

private:
  std::string text;
};

class OutOfMemoryError : public Error {
public:
  using Error::Error;
};

class AcceleratorError : public Error {
public:
  AcceleratorError(SourceLocation place, int32_t native, const std::string& with)
      : Error(place, with), code(native) {}
  int32_t get_error_code() const { return code; }

private:
  int32_t code;
};

struct UserWarning {};
struct Warning {
  Warning(UserWarning, SourceLocation, std::string with, bool) : text(std::move(with)) {}
  std::string text;
};
void warn(const Warning& warning);

}  // namespace c10
#define C10_UNLIKELY(condition) (__builtin_expect(static_cast<bool>(condition), 0))
#define C10_THROW_ERROR(type, text) \
  throw ::c10::type({ __func__, __FILE__, static_cast<uint32_t>(__LINE__) }, text)
#define TORCH_CHECK_WITH(type, condition, text)    \
  do {                                             \
    if (!(condition)) C10_THROW_ERROR(type, text); \
  } while (false)
