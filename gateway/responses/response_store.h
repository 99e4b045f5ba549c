#pragma once
// The responses that clients may go on from (previous_response_id), in one SQLite file (WAL, mode 0600). What
// put() has answered with OK outlives a kill of the process; after a power failure the newest may be missing.
//
// Responses that go on from one another are a conversation. Conversations make room as a whole, the one that
// was unused longest first: a part of one would be of no use. Content that is deleted is overwritten.
//
// One thread at a time. Times are Unix seconds and come from the caller. Errors as in services/sqlite.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/conversations/conversation_types.h"
#include "services/sqlite/database.h"

namespace strata::gateway {

struct StoredResponse {
  std::string id = {};        // "resp_..."
  std::string previous = {};  // that it goes on from; empty: none
  std::string response = {};  // JSON: the response as its client got it
  std::string input = {};     // JSON: array of the items that this request brought along
};

struct ResponseLimits {
  uint64_t bytes_max = 0;    // of ids and JSON, over all responses
  int64_t unused_s_max = 0;  // a conversation that was not used for so long is removed; 0: none is
};

class ResponseStore {
 public:
  // Creates the file if it is not there, and removes what the limits forbid. kDataLoss: it is damaged, no
  // database, somebody else's, or of another version of this program.
  static Result<ResponseStore> open(const std::string& path, ResponseLimits limits, int64_t now);

  // Errors: kOutOfRange (larger than all the room there is, alone or with its conversation), kNotFound (what
  // it goes on from is gone). An id is given once.
  Status put(NamespaceId owner, const StoredResponse& response, int64_t now);
  // kNotFound: there is none of this owner.
  Result<StoredResponse> find(NamespaceId owner, const std::string& id);
  // A response and all that it goes on from, the oldest first; marks the conversation as used. kNotFound
  // names what is missing. kOutOfRange: more than `bytes_max` of JSON.
  Result<std::vector<StoredResponse>> chain(NamespaceId owner, const std::string& id, uint64_t bytes_max,
                                            int64_t now);
  Status remove(NamespaceId owner, const std::string& id);  // kNotFound
  // Removes the conversations that are too old, and gives free space back to the file system.
  Status sweep(int64_t now);

  uint64_t count() const { return count_; }
  uint64_t bytes() const { return bytes_; }

 private:
  ResponseStore(sqlite::Database database, ResponseLimits limits)
      : database_(std::move(database)), limits_(limits) {}
  Status try_put(NamespaceId owner, const StoredResponse& response, uint64_t bytes, int64_t now);
  Status add(NamespaceId owner, const StoredResponse& response, const std::string& conversation,
             uint64_t bytes, int64_t now);
  Status make_room(uint64_t bytes, const std::string& spared);
  Status remove_conversation(const std::string& id);
  Status recount();

  sqlite::Database database_;
  ResponseLimits limits_;
  uint64_t count_ = 0, bytes_ = 0;
};

// Moves a damaged or foreign file, with its companions, out of the way: PATH.set-aside-NOW. The result is
// that name.
Result<std::string> set_aside(const std::string& path, int64_t now);

}  // namespace strata::gateway
