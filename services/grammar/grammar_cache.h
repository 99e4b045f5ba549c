#pragma once
// Compiled grammars by their text: clients send the same schema with every request.

#include <chrono>
#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "services/base/status.h"
#include "services/grammar/grammar.h"
#include "services/grammar/vocabulary.h"

namespace strata::grammar {

class GrammarCache {
 public:
  struct Limits {
    std::size_t bytes_max = std::size_t{256}
                            << 20;  // of grammars kept; the last used one is kept whatever its size
    std::chrono::milliseconds prepare = std::chrono::milliseconds(500);  // for masks, when a grammar is new
  };
  GrammarCache(std::shared_ptr<const Vocabulary> vocabulary, Limits limits)
      : vocabulary_(std::move(vocabulary)), limits_(limits) {}

  // The grammar of this GBNF text, compiled and its masks prepared if it is new. Any thread may call; new
  // grammars are compiled side by side. Errors: those of Grammar::from_gbnf.
  Result<std::shared_ptr<const Grammar>> get(std::string_view gbnf);

  // Makes masks that get() found no time for, for about `slice`, of the grammar used last. False: there was
  // nothing to do. Masks that nobody needed are made up to a quarter of bytes_max for one grammar. Any thread.
  bool prepare_more(std::chrono::milliseconds slice);

  std::size_t size() const;

 private:
  struct Entry {
    std::string text;
    std::shared_ptr<const Grammar> grammar;
    bool prepared = false;
  };
  std::shared_ptr<const Grammar> find(std::string_view gbnf);
  void drop_oldest();

  const std::shared_ptr<const Vocabulary> vocabulary_;
  const Limits limits_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;                                                  // last used first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> by_text_;  // keys point into entries_
};

}  // namespace strata::grammar
