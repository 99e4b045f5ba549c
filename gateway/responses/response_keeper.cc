#include "gateway/responses/response_keeper.h"

#include <fmt/format.h>

#include <boost/json/parse.hpp>
#include <boost/json/string.hpp>

#include "gateway/api/json_text.h"
#include "services/obs/log.h"

namespace strata::gateway {

namespace {

// A history whose JSON is larger fits into no context.
constexpr uint64_t kPastBytesMax = uint64_t{256} << 20;
constexpr std::chrono::hours kSweepInterval{1};
// Of a stored document: a request's own bound and what we put around it.
constexpr std::size_t kDepthMax = kJsonDepthMax + 8;

std::optional<boost::json::value> parse_stored(const std::string& text) {
  boost::json::error_code error;
  boost::json::parse_options options;
  options.max_depth = kDepthMax;
  boost::json::value value = boost::json::parse(text, error, {}, options);
  if (error) return {};
  return value;
}

ApiError storage_error(std::string message) {
  ApiError error{.status = 500, .type = "server_error", .message = std::move(message)};
  error.code = "storage_error";
  return error;
}

bool append(boost::json::value* list, boost::json::array& items) {
  if (list == nullptr || !list->is_array()) return false;
  for (boost::json::value& item : list->get_array()) items.push_back(std::move(item));
  return true;
}

// False: not what we write.
bool append_items(const StoredResponse& stored, boost::json::array& items) {
  auto input = parse_stored(stored.input), response = parse_stored(stored.response);
  if (!input || !response || !response->is_object()) return false;
  return append(&*input, items) && append(response->get_object().if_contains("output"), items);
}

const boost::json::object* find_item(const boost::json::array& items, std::string_view id) {
  for (const boost::json::value& item : items) {
    if (!item.is_object()) continue;
    const boost::json::value* given = item.get_object().if_contains("id");
    if (given != nullptr && given->is_string() && given->get_string() == id) return &item.get_object();
  }
  return nullptr;
}

ApiError no_such_response(const std::string& id) {
  return not_found(fmt::format("there is no stored response {}", snippet(id)), "response_not_found");
}

ApiError no_such_item(const std::string& id) {
  return not_found(fmt::format("input: there is no stored item {} to refer to", snippet(id)),
                   "item_not_found");
}

}  // namespace

std::string response_of_item(std::string_view item_id) {
  const std::size_t first = item_id.find('_'), last = item_id.rfind('_');
  if (first == std::string_view::npos || last <= first + 1) return {};
  return fmt::format("resp_{}", item_id.substr(first + 1, last - first - 1));
}

ResponseKeeper::ResponseKeeper(std::shared_ptr<actor::Executor> executor, Options options,
                               obs::Metrics& metrics)
    : Actor(std::move(executor)),
      options_(std::move(options)),
      stored_(metrics.gauge("strata_responses_stored", "Responses that requests may go on from.")),
      bytes_(metrics.gauge("strata_responses_stored_bytes",
                           "Their size; at responses.bytes_max the conversations unused longest make room.")),
      failures_(metrics.counter("strata_responses_storage_failures_total",
                                "Responses that could not be kept or read; the log says why.")) {}

Result<std::shared_ptr<ResponseKeeper>> ResponseKeeper::start(std::shared_ptr<actor::Executor> executor,
                                                              Options options, obs::Metrics& metrics) {
  std::shared_ptr<ResponseKeeper> keeper(
      new ResponseKeeper(std::move(executor), std::move(options), metrics));
  TRY_OK(keeper->open());
  tell_after(keeper, kSweepInterval, Sweep{});
  return keeper;
}

Status ResponseKeeper::open() {
  const int64_t now = options_.unix_time();
  auto opened = ResponseStore::open(options_.path, options_.limits, now);
  if (!opened && opened.error().code() == Code::kDataLoss) {
    TRY(const std::string aside, set_aside(options_.path, now));
    obs::warn("responses", "{}; moved to {}, and a new file begun", opened.error().message(), aside);
    opened = ResponseStore::open(options_.path, options_.limits, now);
  }
  if (!opened) return std::move(opened).error();
  store_.emplace(std::move(*opened));
  show_figures();
  return {};
}

void ResponseKeeper::show_figures() {
  stored_.Set(static_cast<double>(store_ ? store_->count() : 0));
  bytes_.Set(static_cast<double>(store_ ? store_->bytes() : 0));
}

Status ResponseKeeper::seen(Status status) {
  if (status.ok() || status.code() == Code::kNotFound || status.code() == Code::kOutOfRange) return status;
  failures_.Increment();
  obs::warn("responses", "{}", status.message());
  if (status.code() != Code::kDataLoss) return status;
  store_.reset();
  if (Status again = open(); !again.ok()) obs::error("responses", "{}", again.message());
  show_figures();
  return status;
}

ApiError ResponseKeeper::failed(const Status& status, ApiError none) {
  if (status.code() == Code::kNotFound) return none;
  if (status.code() == Code::kDataLoss)
    return storage_error("the file of stored responses was damaged and has been set aside");
  return storage_error("the stored responses cannot be read now");
}

template <class F>
auto ResponseKeeper::ask(F call) -> decltype(call(std::declval<ResponseStore&>())) {
  if (!store_) return fail(Code::kUnavailable, "{} could not be opened again", options_.path);
  return call(*store_);
}

// ---- what is asked

void ResponseKeeper::on(const Recall& asked) { asked.reply(recall(asked)); }

ApiResult<Past> ResponseKeeper::recall(const Recall& asked) {
  Past past;
  if (!asked.previous.empty()) {
    auto chain = ask([&](ResponseStore& store) {
      return store.chain(asked.owner, asked.previous, kPastBytesMax, options_.unix_time());
    });
    if (!chain) return tl::unexpected(no_past(asked.previous, seen(chain.error())));
    for (const StoredResponse& stored : *chain) {
      if (append_items(stored, past.items)) continue;
      return tl::unexpected(no_past(asked.previous, seen(not_ours(stored.id))));
    }
  }
  for (const std::string& id : asked.references) {
    auto found = item(asked.owner, id, past.items);
    if (!found) return tl::unexpected(std::move(found).error());
    past.referenced[id] = std::move(*found);
  }
  return past;
}

ApiError ResponseKeeper::no_past(const std::string& previous, const Status& status) {
  ApiError error;
  if (status.code() == Code::kOutOfRange) {
    error = invalid_request("the conversation is larger than any context");
    error.code = "context_length_exceeded";
  } else {
    error = failed(status, not_found(fmt::format("{}, or a response that it goes on from, is not stored",
                                                 snippet(previous)),
                                     "previous_response_not_found"));
  }
  error.param = "previous_response_id";
  return error;
}

ApiResult<boost::json::object> ResponseKeeper::item(NamespaceId owner, const std::string& id,
                                                    const boost::json::array& past) {
  if (const boost::json::object* known = find_item(past, id)) return *known;
  const std::string response = response_of_item(id);
  if (response.empty()) return tl::unexpected(no_such_item(id));
  auto stored = ask([&](ResponseStore& store) { return store.find(owner, response); });
  if (!stored) return tl::unexpected(failed(seen(stored.error()), no_such_item(id)));
  boost::json::array items;
  if (!append_items(*stored, items))
    return tl::unexpected(failed(seen(not_ours(response)), no_such_item(id)));
  if (const boost::json::object* known = find_item(items, id)) return *known;
  return tl::unexpected(no_such_item(id));
}

Failure ResponseKeeper::not_ours(const std::string& id) const {
  return fail(Code::kInternal, "{}: {} is no response", options_.path, id);
}

void ResponseKeeper::on(const Keep& keep) {
  const Status kept = seen(
      ask([&](ResponseStore& store) { return store.put(keep.owner, keep.response, options_.unix_time()); }));
  show_figures();
  keep.reply(kept);
}

void ResponseKeeper::on(const Find& find) {
  auto found = ask([&](ResponseStore& store) { return store.find(find.owner, find.id); });
  if (found) return find.reply(std::move(*found));
  find.reply(tl::unexpected(failed(seen(found.error()), no_such_response(find.id))));
}

void ResponseKeeper::on(const Remove& remove) {
  const Status removed =
      seen(ask([&](ResponseStore& store) { return store.remove(remove.owner, remove.id); }));
  show_figures();
  if (removed.ok()) return remove.reply({});
  remove.reply(tl::unexpected(failed(removed, no_such_response(remove.id))));
}

void ResponseKeeper::on(Sweep) {
  if (!store_) {
    if (Status opened = open(); !opened.ok()) obs::warn("responses", "{}", opened.message());
  } else if (Status swept = seen(store_->sweep(options_.unix_time())); swept.ok()) {
    show_figures();
  }
  tell_after(std::static_pointer_cast<ResponseKeeper>(shared_from_this()), kSweepInterval, Sweep{});
}

}  // namespace strata::gateway
