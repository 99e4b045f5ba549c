#include "services/grammar/grammar_cache.h"

namespace strata::grammar {

Result<std::shared_ptr<const Grammar>> GrammarCache::get(std::string_view gbnf) {
  if (auto known = find(gbnf)) return known;
  TRY(std::shared_ptr<const Grammar> made, Grammar::from_gbnf(gbnf, vocabulary_));
  const bool prepared = made->prepare(limits_.prepare) == 0;
  const std::scoped_lock lock(mutex_);
  entries_.push_front({std::string(gbnf), made, prepared});
  // Somebody else may have made the same meanwhile; then that one stays.
  if (!by_text_.emplace(entries_.front().text, entries_.begin()).second) {
    entries_.pop_front();
    return made;
  }
  drop_oldest();
  return made;
}

std::shared_ptr<const Grammar> GrammarCache::find(std::string_view gbnf) {
  const std::scoped_lock lock(mutex_);
  const auto found = by_text_.find(gbnf);
  if (found == by_text_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->grammar;
}

bool GrammarCache::prepare_more(std::chrono::milliseconds slice) {
  std::shared_ptr<const Grammar> grammar;
  {
    const std::scoped_lock lock(mutex_);
    for (auto entry = entries_.begin(); entry != entries_.end() && !grammar; ++entry)
      if (!entry->prepared) grammar = entry->grammar;
  }
  if (!grammar) return false;
  const bool small = grammar->memory_bytes() < limits_.bytes_max / 4;
  const bool prepared = !small || grammar->prepare(slice) == 0;
  const std::scoped_lock lock(mutex_);
  for (Entry& entry : entries_)
    if (entry.grammar == grammar) entry.prepared = prepared;
  drop_oldest();
  return true;
}

// Grammars grow while they are used, so they are added up anew. A matcher keeps what it uses alive.
void GrammarCache::drop_oldest() {
  std::size_t bytes = 0;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    bytes += entry->text.size() + entry->grammar->memory_bytes();
    if (entry == entries_.begin() || bytes <= limits_.bytes_max) {
      ++entry;
      continue;
    }
    by_text_.erase(entry->text);
    entry = entries_.erase(entry);
  }
}

std::size_t GrammarCache::size() const {
  const std::scoped_lock lock(mutex_);
  return entries_.size();
}

}  // namespace strata::grammar
