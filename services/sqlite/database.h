#pragma once
// SQLite behind the project's own errors: a file that only its user can read, statements, transactions. A
// database and what was made of it are used by one thread at a time.
//
// Errors everywhere, with the file's path and SQLite's text: kDataLoss (no database, or damaged),
// kResourceExhausted (the disk is full), kPermissionDenied, kUnavailable (another process holds it longer
// than the busy time), kInternal.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "services/base/status.h"

struct sqlite3;
struct sqlite3_stmt;

namespace strata::sqlite {

class Database {
 public:
  // Creates the file, with mode 0600, if it is not there; a link is not followed. busy: how long to wait for
  // another process.
  static Result<Database> open(const std::string& path,
                               std::chrono::milliseconds busy = std::chrono::milliseconds(0));

  const std::string& path() const { return path_; }
  Status execute(const std::string& sql);
  // The value of a pragma or of another query of one number; 0 if it gives no row.
  Result<int64_t> number(const std::string& sql);
  sqlite3* get() const { return database_.get(); }

 private:
  struct Close {
    void operator()(sqlite3* database) const;
  };
  Database(std::string path, std::unique_ptr<sqlite3, Close> database)
      : path_(std::move(path)), database_(std::move(database)) {}

  std::string path_;
  std::unique_ptr<sqlite3, Close> database_;
};

// The files of a database: itself, its log, the log's index.
std::vector<std::string> files_of(const std::string& path);

// A prepared statement. Bound memory must stay until step() is done.
class Statement {
 public:
  static Result<Statement> prepare(const Database& database, const char* sql);
  Statement(Statement&& other) noexcept
      : database_(other.database_),
        statement_(std::exchange(other.statement_, nullptr)),
        bound_(other.bound_) {}
  Statement& operator=(Statement&&) = delete;
  ~Statement();

  // In the order of the question marks.
  Statement& bind(int64_t value);
  Statement& bind(double value);
  Statement& bind(std::string_view text);
  template <class T>
  Statement& bind(std::span<const T> list) {
    return bind_blob(list.data(), list.size_bytes());
  }

  Result<bool> step();  // true: a row
  Status run();         // for statements without rows; the next bind() begins at the first place again

  int64_t integer(int column) const;
  double real(int column) const;
  std::string_view text(int column) const;  // until the next step()
  template <class T>
  std::vector<T> list(int column) const {
    const std::string_view bytes = blob(column);
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
    return values;
  }

 private:
  explicit Statement(sqlite3* database) : database_(database) {}
  Statement& bind_blob(const void* data, std::size_t bytes);
  std::string_view blob(int column) const;

  sqlite3* database_;
  sqlite3_stmt* statement_ = nullptr;
  int bound_ = 0;
};

// Several changes as one; undone unless commit() succeeds.
class Transaction {
 public:
  explicit Transaction(Database& database) : database_(&database) {}
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  ~Transaction();
  Status begin();
  Status commit();

 private:
  Database* database_;
  bool open_ = false;
};

}  // namespace strata::sqlite
