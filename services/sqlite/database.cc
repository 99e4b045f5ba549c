#include "services/sqlite/database.h"

#include <fcntl.h>
#include <sqlite3.h>

#include <cerrno>

#include "services/sys/errno_status.h"
#include "services/sys/process.h"

namespace strata::sqlite {

namespace {

Code code_of(int error) {
  switch (error & 0xff) {  // the rest says more than we need
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return Code::kDataLoss;
    case SQLITE_FULL:
      return Code::kResourceExhausted;
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_CANTOPEN:
      return Code::kPermissionDenied;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return Code::kUnavailable;
    default:
      return Code::kInternal;
  }
}

Failure failure(sqlite3* database, std::string_view what) {
  return fail(code_of(sqlite3_errcode(database)), "{}: {}: {}", sqlite3_db_filename(database, "main"), what,
              sqlite3_errmsg(database));
}

}  // namespace

void Database::Close::operator()(sqlite3* database) const { sqlite3_close_v2(database); }

Result<Database> Database::open(const std::string& path, std::chrono::milliseconds busy) {
  // SQLite would make it readable for others, and gives its other files the mode of the first.
  const sys::FileDescriptor file(::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.valid()) return fail(sys::errno_code(errno), "{}: {}", path, std::strerror(errno));
  sqlite3* opened = nullptr;
  const int result = sqlite3_open_v2(
      path.c_str(), &opened, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOFOLLOW, nullptr);
  std::unique_ptr<sqlite3, Close> database(opened);
  if (result != SQLITE_OK) return failure(opened, "open");
  sqlite3_busy_timeout(opened, static_cast<int>(busy.count()));
  return Database(path, std::move(database));
}

Status Database::execute(const std::string& sql) {
  if (sqlite3_exec(database_.get(), sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK)
    return failure(database_.get(), sql);
  return {};
}

Result<int64_t> Database::number(const std::string& sql) {
  TRY(Statement ask, Statement::prepare(*this, sql.c_str()));
  TRY(const bool row, ask.step());
  return row ? ask.integer(0) : 0;
}

std::vector<std::string> files_of(const std::string& path) { return {path, path + "-wal", path + "-shm"}; }

Result<Statement> Statement::prepare(const Database& database, const char* sql) {
  Statement statement(database.get());
  if (sqlite3_prepare_v2(database.get(), sql, -1, &statement.statement_, nullptr) != SQLITE_OK)
    return failure(database.get(), sql);
  return statement;
}

Statement::~Statement() { sqlite3_finalize(statement_); }

Statement& Statement::bind(int64_t value) {
  sqlite3_bind_int64(statement_, ++bound_, value);
  return *this;
}

Statement& Statement::bind(double value) {
  sqlite3_bind_double(statement_, ++bound_, value);
  return *this;
}

Statement& Statement::bind(std::string_view text) {
  // A null pointer would be NULL and not an empty text.
  sqlite3_bind_text64(statement_, ++bound_, text.empty() ? "" : text.data(), text.size(), SQLITE_STATIC,
                      SQLITE_UTF8);
  return *this;
}

Statement& Statement::bind_blob(const void* data, std::size_t bytes) {
  sqlite3_bind_blob64(statement_, ++bound_, bytes == 0 ? "" : data, bytes, SQLITE_STATIC);
  return *this;
}

Result<bool> Statement::step() {
  const int result = sqlite3_step(statement_);
  if (result == SQLITE_ROW) return true;
  if (result == SQLITE_DONE) return false;
  return failure(database_, sqlite3_sql(statement_));
}

Status Statement::run() {
  TRY([[maybe_unused]] const bool row, step());
  sqlite3_reset(statement_);
  bound_ = 0;
  return {};
}

int64_t Statement::integer(int column) const { return sqlite3_column_int64(statement_, column); }

double Statement::real(int column) const { return sqlite3_column_double(statement_, column); }

std::string_view Statement::text(int column) const {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  if (text == nullptr) return {};
  return {text, static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))};
}

std::string_view Statement::blob(int column) const {
  const auto* data = static_cast<const char*>(sqlite3_column_blob(statement_, column));
  if (data == nullptr) return {};
  return {data, static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))};
}

Transaction::~Transaction() {
  // What it would say is known: the change was not made.
  if (open_) static_cast<void>(database_->execute("ROLLBACK"));
}

Status Transaction::begin() {
  TRY_OK(database_->execute("BEGIN IMMEDIATE"));
  open_ = true;
  return {};
}

Status Transaction::commit() {
  TRY_OK(database_->execute("COMMIT"));
  open_ = false;
  return {};
}

}  // namespace strata::sqlite
