#pragma once
// What the disk tier knows of its files without opening them: a SQLite database (WAL) beside them. It repeats
// what the manifests say, so losing it costs the time of reading them, and it may lag behind: the tier
// compares it with the folder. One thread at a time.

#include <functional>
#include <span>
#include <string>

#include "services/base/status.h"
#include "services/snapshot/content.h"
#include "services/sqlite/database.h"

namespace strata::snapshot {

inline constexpr int kIndexSchemaVersion = 1;
inline constexpr const char* kIndexFile = "index.sqlite";

class DiskIndex {
 public:
  // Creates it if it is not there. Errors: kDataLoss (no database, damaged, of another schema version:
  // remove() and open again), kResourceExhausted, kPermissionDenied, kInternal with SQLite's text.
  static Result<DiskIndex> open(const std::string& folder);
  // Removes its files; the next open() makes an empty one.
  static void remove_files(const std::string& folder);

  // Every snapshot in it. The seed is not kept here: zero. Errors as open().
  Status load(const std::function<void(Manifest)>& visit);
  Status put(const Manifest& manifest, uint32_t page_tokens);
  Status remove(const SnapshotId& id, std::span<const Hash128> unused_pages);
  Status touch(const SnapshotId& id, int64_t last_used_ms);

 private:
  explicit DiskIndex(sqlite::Database database) : database_(std::move(database)) {}
  sqlite::Database database_;
};

}  // namespace strata::snapshot
