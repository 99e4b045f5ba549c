#pragma once
// Who keeps responses and remembers them for later requests: an actor, for the file may be slow and the HTTP
// thread must not wait for it. A file that turns out damaged is set aside and a new one begun; what it held
// is lost, and each who asks for it hears that there is no such response.

#include <boost/json/array.hpp>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gateway/api/api_error.h"
#include "gateway/responses/response_store.h"
#include "services/actor/actor.h"
#include "services/obs/metrics.h"

namespace strata::gateway {

// What a request builds on.
struct Past {
  boost::json::array items = {};  // of the responses it goes on from: input and output, the oldest first
  std::map<std::string, boost::json::object> referenced = {};  // by item id
};

class ResponseKeeper : public actor::Actor {
 public:
  struct Recall {
    NamespaceId owner = {};
    std::string previous = {};                 // response id; empty: none
    std::vector<std::string> references = {};  // item ids
    // 404 with code previous_response_not_found or item_not_found; 400 context_length_exceeded: more than any
    // context holds; 500 storage_error.
    std::function<void(ApiResult<Past>)> reply = {};
  };
  struct Keep {
    NamespaceId owner = {};
    StoredResponse response = {};
    std::function<void(Status)> reply = {};  // OK: it is in the file
  };
  struct Find {
    NamespaceId owner = {};
    std::string id = {};
    std::function<void(ApiResult<StoredResponse>)> reply = {};  // 404 response_not_found, 500 storage_error
  };
  struct Remove {
    NamespaceId owner = {};
    std::string id = {};
    std::function<void(ApiResult<void>)> reply = {};  // as Find
  };
  struct Sweep {};  // tells itself again

  struct Options {
    std::string path = {};
    ResponseLimits limits = {};
    std::function<int64_t()> unix_time = {};
  };
  // Opens the file. Errors are start-up faults: it cannot be made or read. A damaged or foreign one is set
  // aside with a warning. metrics must outlive the keeper.
  static Result<std::shared_ptr<ResponseKeeper>> start(std::shared_ptr<actor::Executor> executor,
                                                       Options options, obs::Metrics& metrics);

  void on(const Recall& recall);
  void on(const Keep& keep);
  void on(const Find& find);
  void on(const Remove& remove);
  void on(Sweep);

 private:
  ResponseKeeper(std::shared_ptr<actor::Executor> executor, Options options, obs::Metrics& metrics);
  Status open();
  ApiResult<Past> recall(const Recall& asked);
  ApiResult<boost::json::object> item(NamespaceId owner, const std::string& id,
                                      const boost::json::array& past);
  // What a call of the store gives; kUnavailable while there is none.
  template <class F>
  auto ask(F call) -> decltype(call(std::declval<ResponseStore&>()));
  // The same status, after it was counted and a damaged file set aside.
  Status seen(Status status);
  void show_figures();
  Failure not_ours(const std::string& id) const;
  ApiError failed(const Status& status, ApiError none);
  ApiError no_past(const std::string& previous, const Status& status);

  Options options_;
  std::optional<ResponseStore> store_;  // empty: it broke, and a new one could not be made yet
  prometheus::Gauge& stored_;
  prometheus::Gauge& bytes_;
  prometheus::Counter& failures_;
};

// The response that an item was part of: ids of items are KIND_<hex>_<place>, that of the response is
// resp_<hex>. Empty: not one of ours.
std::string response_of_item(std::string_view item_id);

}  // namespace strata::gateway
