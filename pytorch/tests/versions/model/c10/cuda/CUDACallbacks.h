// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A model of PyTorch's callbacks that free memory when there is none.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace c10 {

class FreeMemoryCallback {
public:
  virtual ~FreeMemoryCallback() = default;
  virtual bool Execute() = 0;
};

class FreeMemoryRegistry {
public:
  std::vector<std::string> Keys() const {
    std::vector<std::string> keys;
    for (const auto& [key, maker] : makers) keys.push_back(key);
    return keys;
  }
  std::unique_ptr<FreeMemoryCallback> Create(const std::string& key) const { return makers.at(key)(); }
  std::map<std::string, std::function<std::unique_ptr<FreeMemoryCallback>()>> makers;
};
FreeMemoryRegistry* FreeCudaMemoryCallbacksRegistry();

}  // namespace c10
