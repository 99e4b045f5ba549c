#include "services/snapshot/disk_index.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <unordered_map>

#include "services/sys/errno_status.h"
#include "services/sys/process.h"

namespace strata::snapshot {
namespace {

// Words and checksum of a page stand once, whoever refers to it.
constexpr const char* kSchema = R"sql(
CREATE TABLE pages(key BLOB PRIMARY KEY, checksum INTEGER NOT NULL, words BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE snapshots(
  id BLOB PRIMARY KEY, name_space BLOB NOT NULL, kind INTEGER NOT NULL, cost_seconds REAL NOT NULL,
  created_ms INTEGER NOT NULL, last_used_ms INTEGER NOT NULL, page_keys BLOB NOT NULL, tail_words BLOB NOT NULL,
  tail_bytes INTEGER NOT NULL, tail_checksum INTEGER NOT NULL, part_checksums BLOB NOT NULL) WITHOUT ROWID;
)sql";

Failure index_failure(sqlite3* database, const char* what) {
  const int error = sqlite3_errcode(database) & 0xff;
  const Code code = error == SQLITE_CORRUPT || error == SQLITE_NOTADB ? Code::kDataLoss
                    : error == SQLITE_FULL                            ? Code::kResourceExhausted
                    : error == SQLITE_READONLY || error == SQLITE_PERM || error == SQLITE_CANTOPEN
                        ? Code::kPermissionDenied
                        : Code::kInternal;
  return fail(code, "{}: {}: {}", sqlite3_db_filename(database, "main"), what, sqlite3_errmsg(database));
}

Status execute(sqlite3* database, const char* sql) {
  if (sqlite3_exec(database, sql, nullptr, nullptr, nullptr) != SQLITE_OK)
    return index_failure(database, sql);
  return {};
}

// A prepared statement. Bound memory must stay until step() is done.
class Statement {
 public:
  static Result<Statement> prepare(sqlite3* database, const char* sql) {
    Statement statement(database);
    if (sqlite3_prepare_v2(database, sql, -1, &statement.statement_, nullptr) != SQLITE_OK) {
      return index_failure(database, sql);
    }
    return statement;
  }
  Statement(Statement&& other) noexcept
      : database_(other.database_), statement_(std::exchange(other.statement_, nullptr)) {}
  Statement& operator=(Statement&&) = delete;
  ~Statement() { sqlite3_finalize(statement_); }

  Statement& bind(int64_t value) {
    sqlite3_bind_int64(statement_, ++bound_, value);
    return *this;
  }
  Statement& bind(double value) {
    sqlite3_bind_double(statement_, ++bound_, value);
    return *this;
  }
  template <class T>
  Statement& bind(std::span<const T> list) {
    // A null pointer would be NULL and not an empty blob.
    const void* data = list.empty() ? static_cast<const void*>("") : list.data();
    sqlite3_bind_blob64(statement_, ++bound_, data, list.size_bytes(), SQLITE_STATIC);
    return *this;
  }
  Statement& bind(const Hash128& hash) { return bind(std::span(&hash, 1)); }

  Result<bool> step() {  // true: a row
    const int result = sqlite3_step(statement_);
    if (result == SQLITE_ROW) return true;
    if (result == SQLITE_DONE) return false;
    return index_failure(database_, "step");
  }
  Status run() {
    TRY([[maybe_unused]] const bool row, step());
    sqlite3_reset(statement_);
    bound_ = 0;
    return {};
  }

  int64_t integer(int column) const { return sqlite3_column_int64(statement_, column); }
  double real(int column) const { return sqlite3_column_double(statement_, column); }
  template <class T>
  std::vector<T> list(int column) const {
    const void* data = sqlite3_column_blob(statement_, column);
    std::vector<T> values(static_cast<std::size_t>(sqlite3_column_bytes(statement_, column)) / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), data, values.size() * sizeof(T));
    return values;
  }
  Hash128 hash(int column) const {
    const auto hashes = list<Hash128>(column);
    return hashes.empty() ? Hash128() : hashes.front();
  }

 private:
  explicit Statement(sqlite3* database) : database_(database) {}
  sqlite3* database_;
  sqlite3_stmt* statement_ = nullptr;
  int bound_ = 0;
};

// Several changes as one; undone unless commit() succeeds.
class Transaction {
 public:
  explicit Transaction(sqlite3* database) : database_(database) {}
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  ~Transaction() {
    if (open_) sqlite3_exec(database_, "ROLLBACK", nullptr, nullptr, nullptr);
  }
  Status begin() {
    TRY_OK(execute(database_, "BEGIN IMMEDIATE"));
    open_ = true;
    return {};
  }
  Status commit() {
    TRY_OK(execute(database_, "COMMIT"));
    open_ = false;
    return {};
  }

 private:
  sqlite3* database_;
  bool open_ = false;
};

Status prepare_schema(sqlite3* database) {
  // NORMAL: after a power failure the last changes may be missing, which opening the tier repairs from the
  // folder.
  TRY_OK(execute(database, "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"));
  int64_t version = 0;
  {
    TRY(Statement ask, Statement::prepare(database, "PRAGMA user_version"));
    TRY(const bool row, ask.step());
    if (row) version = ask.integer(0);
  }
  if (version == kIndexSchemaVersion) return {};
  if (version != 0) {
    return fail(Code::kDataLoss, "{}: schema version {}, expected {}", sqlite3_db_filename(database, "main"),
                version, kIndexSchemaVersion);
  }
  Transaction transaction(database);
  TRY_OK(transaction.begin());
  TRY_OK(execute(database, kSchema));
  TRY_OK(execute(database, fmt::format("PRAGMA user_version={}", kIndexSchemaVersion).c_str()));
  return transaction.commit();
}

}  // namespace

void DiskIndex::Close::operator()(sqlite3* database) const { sqlite3_close_v2(database); }

Result<DiskIndex> DiskIndex::open(const std::string& folder) {
  const std::string path = folder + "/" + kIndexFile;
  // SQLite would make it readable for others, and gives its other files the mode of the first.
  const sys::FileDescriptor file(::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.valid()) return fail(sys::errno_code(errno), "{}: {}", path, std::strerror(errno));
  sqlite3* opened = nullptr;
  const int result = sqlite3_open_v2(
      path.c_str(), &opened, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOFOLLOW, nullptr);
  std::unique_ptr<sqlite3, Close> database(opened);
  if (result != SQLITE_OK) return index_failure(opened, "open");
  TRY_OK(prepare_schema(opened));
  return DiskIndex(std::move(database));
}

void DiskIndex::remove_files(const std::string& folder) {
  for (const char* suffix : {"", "-wal", "-shm"}) ::unlink((folder + "/" + kIndexFile + suffix).c_str());
}

Status DiskIndex::load(const std::function<void(Manifest)>& visit) {
  struct Page {
    uint64_t checksum = 0;
    std::vector<TokenWord> words;
  };
  std::unordered_map<Hash128, Page, Hash128Hasher> pages;
  TRY(Statement page, Statement::prepare(database_.get(), "SELECT key, checksum, words FROM pages"));
  for (;;) {
    TRY(const bool row, page.step());
    if (!row) break;
    pages.emplace(page.hash(0),
                  Page{.checksum = static_cast<uint64_t>(page.integer(1)), .words = page.list<TokenWord>(2)});
  }
  TRY(Statement snapshot,
      Statement::prepare(
          database_.get(),
          "SELECT id, name_space, kind, cost_seconds, created_ms, last_used_ms, page_keys, tail_words, "
          "tail_bytes, tail_checksum, part_checksums FROM snapshots"));
  for (;;) {
    TRY(const bool row, snapshot.step());
    if (!row) return {};
    Manifest manifest;
    manifest.id = snapshot.hash(0);
    manifest.name_space = snapshot.hash(1);
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
  Transaction transaction(database_.get());
  TRY_OK(transaction.begin());
  const std::span<const TokenWord> words(manifest.words);
  {
    TRY(Statement page, Statement::prepare(database_.get(), "INSERT OR IGNORE INTO pages VALUES(?, ?, ?)"));
    for (std::size_t i = 0; i < manifest.page_keys.size(); ++i) {
      TRY_OK(page.bind(manifest.page_keys[i])
                 .bind(static_cast<int64_t>(manifest.page_checksums[i]))
                 .bind(words.subspan(i * page_tokens, page_tokens))
                 .run());
    }
    TRY(Statement snapshot,
        Statement::prepare(database_.get(),
                           "INSERT OR REPLACE INTO snapshots VALUES(?,?,?,?,?,?,?,?,?,?,?)"));
    TRY_OK(snapshot.bind(manifest.id)
               .bind(manifest.name_space)
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
  Transaction transaction(database_.get());
  TRY_OK(transaction.begin());
  {
    TRY(Statement snapshot, Statement::prepare(database_.get(), "DELETE FROM snapshots WHERE id = ?"));
    TRY_OK(snapshot.bind(id).run());
    TRY(Statement page, Statement::prepare(database_.get(), "DELETE FROM pages WHERE key = ?"));
    for (const Hash128& key : unused_pages) TRY_OK(page.bind(key).run());
  }
  return transaction.commit();
}

Status DiskIndex::touch(const SnapshotId& id, int64_t last_used_ms) {
  TRY(Statement update,
      Statement::prepare(database_.get(), "UPDATE snapshots SET last_used_ms = ? WHERE id = ?"));
  return update.bind(last_used_ms).bind(id).run();
}

}  // namespace strata::snapshot
