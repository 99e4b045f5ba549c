#include "services/snapshot/disk_index.h"

#include <unistd.h>

#include <unordered_map>

namespace strata::snapshot {
namespace {

using sqlite::Database;
using sqlite::Statement;
using sqlite::Transaction;

// Words and checksum of a page stand once, whoever refers to it.
constexpr const char* kSchema = R"sql(
CREATE TABLE pages(key BLOB PRIMARY KEY, checksum INTEGER NOT NULL, words BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE snapshots(
  id BLOB PRIMARY KEY, name_space BLOB NOT NULL, kind INTEGER NOT NULL, cost_seconds REAL NOT NULL,
  created_ms INTEGER NOT NULL, last_used_ms INTEGER NOT NULL, page_keys BLOB NOT NULL, tail_words BLOB NOT NULL,
  tail_bytes INTEGER NOT NULL, tail_checksum INTEGER NOT NULL, part_checksums BLOB NOT NULL) WITHOUT ROWID;
)sql";

std::span<const Hash128> one(const Hash128& hash) { return {&hash, 1}; }

Hash128 hash_of(const Statement& statement, int column) {
  const auto hashes = statement.list<Hash128>(column);
  return hashes.empty() ? Hash128() : hashes.front();
}

Status prepare_schema(Database& database) {
  // NORMAL: after a power failure the last changes may be missing, which opening the tier repairs from the
  // folder.
  TRY_OK(database.execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"));
  TRY(const int64_t version, database.number("PRAGMA user_version"));
  if (version == kIndexSchemaVersion) return {};
  if (version != 0) {
    return fail(Code::kDataLoss, "{}: schema version {}, expected {}", database.path(), version,
                kIndexSchemaVersion);
  }
  Transaction transaction(database);
  TRY_OK(transaction.begin());
  TRY_OK(database.execute(kSchema));
  TRY_OK(database.execute(fmt::format("PRAGMA user_version={}", kIndexSchemaVersion)));
  return transaction.commit();
}

}  // namespace

Result<DiskIndex> DiskIndex::open(const std::string& folder) {
  TRY(Database database, Database::open(folder + "/" + kIndexFile));
  TRY_OK(prepare_schema(database));
  return DiskIndex(std::move(database));
}

void DiskIndex::remove_files(const std::string& folder) {
  for (const std::string& file : sqlite::files_of(folder + "/" + kIndexFile)) ::unlink(file.c_str());
}

Status DiskIndex::load(const std::function<void(Manifest)>& visit) {
  struct Page {
    uint64_t checksum = 0;
    std::vector<TokenWord> words;
  };
  std::unordered_map<Hash128, Page, Hash128Hasher> pages;
  TRY(Statement page, Statement::prepare(database_, "SELECT key, checksum, words FROM pages"));
  for (;;) {
    TRY(const bool row, page.step());
    if (!row) break;
    pages.emplace(hash_of(page, 0),
                  Page{.checksum = static_cast<uint64_t>(page.integer(1)), .words = page.list<TokenWord>(2)});
  }
  TRY(Statement snapshot,
      Statement::prepare(
          database_,
          "SELECT id, name_space, kind, cost_seconds, created_ms, last_used_ms, page_keys, tail_words, "
          "tail_bytes, tail_checksum, part_checksums FROM snapshots"));
  for (;;) {
    TRY(const bool row, snapshot.step());
    if (!row) return {};
    Manifest manifest;
    manifest.id = hash_of(snapshot, 0);
    manifest.name_space = hash_of(snapshot, 1);
    manifest.kind = static_cast<SnapshotKind>(snapshot.integer(2));
    manifest.cost_seconds = snapshot.real(3);
    manifest.created_ms = snapshot.integer(4);
    manifest.last_used_ms = snapshot.integer(5);
    manifest.page_keys = snapshot.list<Hash128>(6);
    for (const Hash128& key : manifest.page_keys) {
      const auto known = pages.find(key);
      if (known == pages.end()) return fail(Code::kDataLoss, "{}: no page {}", kIndexFile, key.text());
      manifest.page_checksums.push_back(known->second.checksum);
      manifest.words.insert(manifest.words.end(), known->second.words.begin(), known->second.words.end());
    }
    const auto tail = snapshot.list<TokenWord>(7);
    manifest.words.insert(manifest.words.end(), tail.begin(), tail.end());
    manifest.tail_bytes = static_cast<uint64_t>(snapshot.integer(8));
    manifest.tail_checksum = static_cast<uint64_t>(snapshot.integer(9));
    manifest.part_checksums = snapshot.list<uint64_t>(10);
    visit(std::move(manifest));
  }
}

Status DiskIndex::put(const Manifest& manifest, uint32_t page_tokens) {
  Transaction transaction(database_);
  TRY_OK(transaction.begin());
  const std::span<const TokenWord> words(manifest.words);
  {
    TRY(Statement page, Statement::prepare(database_, "INSERT OR IGNORE INTO pages VALUES(?, ?, ?)"));
    for (std::size_t i = 0; i < manifest.page_keys.size(); ++i) {
      TRY_OK(page.bind(one(manifest.page_keys[i]))
                 .bind(static_cast<int64_t>(manifest.page_checksums[i]))
                 .bind(words.subspan(i * page_tokens, page_tokens))
                 .run());
    }
    TRY(Statement snapshot,
        Statement::prepare(database_, "INSERT OR REPLACE INTO snapshots VALUES(?,?,?,?,?,?,?,?,?,?,?)"));
    TRY_OK(snapshot.bind(one(manifest.id))
               .bind(one(manifest.name_space))
               .bind(static_cast<int64_t>(manifest.kind))
               .bind(manifest.cost_seconds)
               .bind(manifest.created_ms)
               .bind(manifest.last_used_ms)
               .bind(std::span<const Hash128>(manifest.page_keys))
               .bind(words.subspan(manifest.page_keys.size() * page_tokens))
               .bind(static_cast<int64_t>(manifest.tail_bytes))
               .bind(static_cast<int64_t>(manifest.tail_checksum))
               .bind(std::span<const uint64_t>(manifest.part_checksums))
               .run());
  }
  return transaction.commit();
}

Status DiskIndex::remove(const SnapshotId& id, std::span<const Hash128> unused_pages) {
  Transaction transaction(database_);
  TRY_OK(transaction.begin());
  {
    TRY(Statement snapshot, Statement::prepare(database_, "DELETE FROM snapshots WHERE id = ?"));
    TRY_OK(snapshot.bind(one(id)).run());
    TRY(Statement page, Statement::prepare(database_, "DELETE FROM pages WHERE key = ?"));
    for (const Hash128& key : unused_pages) TRY_OK(page.bind(one(key)).run());
  }
  return transaction.commit();
}

Status DiskIndex::touch(const SnapshotId& id, int64_t last_used_ms) {
  TRY(Statement update, Statement::prepare(database_, "UPDATE snapshots SET last_used_ms = ? WHERE id = ?"));
  return update.bind(last_used_ms).bind(one(id)).run();
}

}  // namespace strata::snapshot
