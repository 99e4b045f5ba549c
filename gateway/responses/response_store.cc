#include "gateway/responses/response_store.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <span>

#include "services/sys/errno_status.h"

namespace strata::gateway {

namespace {

using sqlite::Database;
using sqlite::Statement;
using sqlite::Transaction;

constexpr int64_t kApplicationId = 0x53747252;  // "StrR": tells our files from other programs'
constexpr int64_t kSchemaVersion = 1;
// Another gateway may have the file for a moment: the one before us, which is being stopped.
constexpr std::chrono::milliseconds kBusy{5000};
// Given back at a time: a sweep must not hold the thread for long.
constexpr int kVacuumPages = 4096;

constexpr const char* kSchema = R"sql(
CREATE TABLE responses(
  id TEXT NOT NULL UNIQUE, owner BLOB NOT NULL, conversation TEXT NOT NULL, previous TEXT NOT NULL,
  bytes INTEGER NOT NULL, response TEXT NOT NULL, input TEXT NOT NULL);
CREATE INDEX of_conversation ON responses(conversation);
CREATE TABLE conversations(id TEXT PRIMARY KEY, used_s INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX by_use ON conversations(used_s);
)sql";

std::span<const NamespaceId> one(const NamespaceId& id) { return {&id, 1}; }

Failure none_like(const std::string& id) {
  return fail(Code::kNotFound, "there is no stored response {}", id);
}

// What others may read would be made larger, not what it should be (rule I8).
Status check_privacy(const std::string& path) {
  struct stat info{};
  if (::lstat(path.c_str(), &info) != 0)
    return fail(sys::errno_code(errno), "{}: {}", path, std::strerror(errno));
  if (info.st_uid != ::geteuid())
    return fail(Code::kPermissionDenied, "{}: belongs to user {}, not to us", path, info.st_uid);
  if ((info.st_mode & 077) != 0) {
    return fail(Code::kPermissionDenied, "{}: others may read it (mode {:04o}); chmod 600 it", path,
                info.st_mode & 07777);
  }
  return {};
}

// The first statement that touches the file: damage to its head shows here.
Status prepare_schema(Database& database) {
  // auto_vacuum and the mode of the log have to be there before the tables are.
  TRY_OK(
      database.execute("PRAGMA auto_vacuum=INCREMENTAL; PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; "
                       "PRAGMA secure_delete=ON;"));
  TRY(const int64_t application, database.number("PRAGMA application_id"));
  TRY(const int64_t version, database.number("PRAGMA user_version"));
  if (application == kApplicationId && version == kSchemaVersion) return {};
  TRY(const int64_t tables, database.number("SELECT count(*) FROM sqlite_master"));
  if (application == kApplicationId || application != 0 || version != 0 || tables != 0) {
    return fail(Code::kDataLoss, "{}: application {:#x} version {}, expected {:#x} version {}",
                database.path(), application, version, kApplicationId, kSchemaVersion);
  }
  Transaction transaction(database);
  TRY_OK(transaction.begin());
  TRY_OK(database.execute(kSchema));
  TRY_OK(database.execute(
      fmt::format("PRAGMA application_id={}; PRAGMA user_version={}", kApplicationId, kSchemaVersion)));
  return transaction.commit();
}

uint64_t bytes_of(const StoredResponse& response) {
  return response.id.size() + response.previous.size() + response.response.size() + response.input.size();
}

}  // namespace

Result<ResponseStore> ResponseStore::open(const std::string& path, ResponseLimits limits, int64_t now) {
  TRY(Database database, Database::open(path, kBusy));
  TRY_OK(check_privacy(path));
  TRY_OK(prepare_schema(database));
  ResponseStore store(std::move(database), limits);
  TRY_OK(store.recount());
  TRY_OK(store.sweep(now));
  TRY_OK(store.make_room(0, {}));
  return store;
}

Status ResponseStore::put(NamespaceId owner, const StoredResponse& response, int64_t now) {
  const uint64_t bytes = bytes_of(response);
  if (Status added = try_put(owner, response, bytes, now); !added.ok()) {
    // What was to make room is there again.
    TRY_OK(recount());
    return added;
  }
  ++count_;
  bytes_ += bytes;
  return {};
}

Status ResponseStore::try_put(NamespaceId owner, const StoredResponse& response, uint64_t bytes,
                              int64_t now) {
  Transaction transaction(database_);
  TRY_OK(transaction.begin());
  std::string conversation = response.id;
  uint64_t conversation_bytes = 0;
  if (!response.previous.empty()) {
    TRY(Statement ask,
        Statement::prepare(database_, "SELECT conversation FROM responses WHERE id = ? AND owner = ?"));
    TRY(const bool row, ask.bind(response.previous).bind(one(owner)).step());
    if (!row) return none_like(response.previous);
    conversation = ask.text(0);
    TRY(Statement sum,
        Statement::prepare(database_, "SELECT sum(bytes) FROM responses WHERE conversation = ?"));
    TRY([[maybe_unused]] const bool summed, sum.bind(conversation).step());
    conversation_bytes = static_cast<uint64_t>(sum.integer(0));
  }
  if (conversation_bytes + bytes > limits_.bytes_max) {
    return fail(Code::kOutOfRange, "{} bytes of this conversation do not fit into the {} bytes there are",
                conversation_bytes + bytes, limits_.bytes_max);
  }
  TRY_OK(add(owner, response, conversation, bytes, now));
  TRY_OK(make_room(bytes, conversation));
  return transaction.commit();
}

Status ResponseStore::add(NamespaceId owner, const StoredResponse& response, const std::string& conversation,
                          uint64_t bytes, int64_t now) {
  TRY(Statement insert, Statement::prepare(database_, "INSERT INTO responses VALUES(?,?,?,?,?,?,?)"));
  TRY_OK(insert.bind(response.id)
             .bind(one(owner))
             .bind(conversation)
             .bind(response.previous)
             .bind(static_cast<int64_t>(bytes))
             .bind(response.response)
             .bind(response.input)
             .run());
  TRY(Statement use, Statement::prepare(database_, "INSERT OR REPLACE INTO conversations VALUES(?,?)"));
  return use.bind(conversation).bind(now).run();
}

Result<StoredResponse> ResponseStore::find(NamespaceId owner, const std::string& id) {
  TRY(Statement ask,
      Statement::prepare(database_,
                         "SELECT previous, response, input FROM responses WHERE id = ? AND owner = ?"));
  TRY(const bool row, ask.bind(id).bind(one(owner)).step());
  if (!row) return none_like(id);
  return StoredResponse{.id = id,
                        .previous = std::string(ask.text(0)),
                        .response = std::string(ask.text(1)),
                        .input = std::string(ask.text(2))};
}

Result<std::vector<StoredResponse>> ResponseStore::chain(NamespaceId owner, const std::string& id,
                                                         uint64_t bytes_max, int64_t now) {
  std::vector<StoredResponse> out;
  uint64_t bytes = 0;
  for (std::string next = id; !next.empty(); next = out.back().previous) {
    TRY(StoredResponse found, find(owner, next));
    bytes += bytes_of(found);
    if (bytes > bytes_max)
      return fail(Code::kOutOfRange, "{} goes on from more than {} bytes", id, bytes_max);
    out.push_back(std::move(found));
  }
  std::ranges::reverse(out);
  TRY(Statement use, Statement::prepare(database_,
                                        "UPDATE conversations SET used_s = ? WHERE id = (SELECT conversation "
                                        "FROM responses WHERE id = ?)"));
  TRY_OK(use.bind(now).bind(id).run());
  return out;
}

Status ResponseStore::remove(NamespaceId owner, const std::string& id) {
  {
    TRY(Statement erase, Statement::prepare(database_, "DELETE FROM responses WHERE id = ? AND owner = ?"));
    TRY_OK(erase.bind(id).bind(one(owner)).run());
  }
  TRY(const int64_t changed, database_.number("SELECT changes()"));
  if (changed == 0) return none_like(id);
  TRY_OK(database_.execute("DELETE FROM conversations WHERE id NOT IN (SELECT conversation FROM responses)"));
  return recount();
}

Status ResponseStore::sweep(int64_t now) {
  if (limits_.unused_s_max != 0) {
    Transaction transaction(database_);
    TRY_OK(transaction.begin());
    const int64_t oldest = now - limits_.unused_s_max;
    for (const char* sql : {"DELETE FROM responses WHERE conversation IN (SELECT id FROM conversations WHERE "
                            "used_s < ?)",
                            "DELETE FROM conversations WHERE used_s < ?"}) {
      TRY(Statement erase, Statement::prepare(database_, sql));
      TRY_OK(erase.bind(oldest).run());
    }
    TRY_OK(transaction.commit());
    TRY_OK(recount());
  }
  return database_.execute(fmt::format("PRAGMA incremental_vacuum({})", kVacuumPages));
}

// For so many bytes that are being added to the conversation `spared`.
Status ResponseStore::make_room(uint64_t bytes, const std::string& spared) {
  while (bytes_ + bytes > limits_.bytes_max) {
    std::string oldest;
    {
      TRY(Statement ask,
          Statement::prepare(database_,
                             "SELECT id FROM conversations WHERE id <> ? ORDER BY used_s LIMIT 1"));
      TRY(const bool row, ask.bind(spared).step());
      if (!row) return {};
      oldest = ask.text(0);
    }
    TRY_OK(remove_conversation(oldest));
  }
  return {};
}

Status ResponseStore::remove_conversation(const std::string& id) {
  uint64_t count = 0, bytes = 0;
  {
    TRY(Statement sum,
        Statement::prepare(database_, "SELECT count(*), sum(bytes) FROM responses WHERE conversation = ?"));
    TRY([[maybe_unused]] const bool row, sum.bind(id).step());
    count = static_cast<uint64_t>(sum.integer(0));
    bytes = static_cast<uint64_t>(sum.integer(1));
  }
  for (const char* sql :
       {"DELETE FROM responses WHERE conversation = ?", "DELETE FROM conversations WHERE id = ?"}) {
    TRY(Statement erase, Statement::prepare(database_, sql));
    TRY_OK(erase.bind(id).run());
  }
  count_ -= std::min(count, count_);
  bytes_ -= std::min(bytes, bytes_);
  return {};
}

Status ResponseStore::recount() {
  TRY(const int64_t count, database_.number("SELECT count(*) FROM responses"));
  TRY(const int64_t bytes, database_.number("SELECT sum(bytes) FROM responses"));
  count_ = static_cast<uint64_t>(count);
  bytes_ = static_cast<uint64_t>(bytes);
  return {};
}

Result<std::string> set_aside(const std::string& path, int64_t now) {
  const std::string aside = fmt::format("{}.set-aside-{}", path, now);
  const auto from = sqlite::files_of(path), to = sqlite::files_of(aside);
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (std::rename(from[i].c_str(), to[i].c_str()) != 0 && errno != ENOENT)
      return fail(sys::errno_code(errno), "{}: {}", from[i], std::strerror(errno));
  }
  return aside;
}

}  // namespace strata::gateway
