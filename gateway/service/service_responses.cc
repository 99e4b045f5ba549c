// The desk's part of /v1/responses: what a request goes on from is asked for between reading the request and
// making its prompt; the other routes only ask the keeper.

#include <utility>

#include "gateway/service/response_desk.h"
#include "gateway/service/service.h"

namespace strata::gateway {

void Service::prepare_response(std::shared_ptr<Exchange> exchange) {
  if (!may_begin(*exchange, Endpoint::kResponses)) return;
  ++preparing_;
  next_worker().post([service = self(), preparer = preparer_, exchange = std::move(exchange)] {
    auto request = preparer->read_response(exchange->request());
    if (request) {
      tell(service, ResponseRead{.exchange = exchange,
                                 .request = std::make_shared<ResponseRequest>(std::move(*request))});
      return;
    }
    auto refused = std::make_shared<ApiResult<GenerationJob>>(tl::unexpected(std::move(request).error()));
    tell(service,
         Prepared{.exchange = exchange, .endpoint = Endpoint::kResponses, .job = std::move(refused)});
  });
}

void Service::on(ResponseRead read) {
  const ResponseRequest& request = *read.request;
  if (request.previous.empty() && request.input.references.empty())
    return on(PastKnown{.read = std::move(read), .past = std::make_shared<ApiResult<Past>>()});
  if (environment_.keeper == nullptr) {
    ApiError error = storage_is_off(request.previous.empty() ? "input" : "previous_response_id");
    auto past = std::make_shared<ApiResult<Past>>(tl::unexpected(std::move(error)));
    return on(PastKnown{.read = std::move(read), .past = std::move(past)});
  }
  ResponseKeeper::Recall recall{.owner = key_namespace(read.exchange->request().key_hash),
                                .previous = request.previous,
                                .references = request.input.references};
  recall.reply = [service = self(), read = std::move(read)](ApiResult<Past> past) {
    tell(service, PastKnown{.read = read, .past = std::make_shared<ApiResult<Past>>(std::move(past))});
  };
  tell(environment_.keeper, std::move(recall));
}

void Service::on(PastKnown known) {
  next_worker().post([service = self(), preparer = preparer_, known = std::move(known),
                      store = environment_.keeper != nullptr] {
    const ApiResult<Past>& past = *known.past;
    auto job = past ? preparer->response(std::move(*known.read.request), *past, store,
                                         known.read.exchange->request())
                    : ApiResult<GenerationJob>(tl::unexpected(past.error()));
    Prepared prepared{.exchange = known.read.exchange,
                      .endpoint = Endpoint::kResponses,
                      .job = std::make_shared<ApiResult<GenerationJob>>(std::move(job))};
    tell(service, std::move(prepared));
  });
}

void Service::answer_stored(const std::shared_ptr<Exchange>& exchange, const Match& match) {
  if (environment_.keeper == nullptr) return exchange->respond(error_response(nothing_is_stored()));
  const NamespaceId owner = key_namespace(exchange->request().key_hash);
  if (match.route == Route::kDeleteResponse) {
    ResponseKeeper::Remove remove{.owner = owner, .id = match.name};
    remove.reply = [service = self(), exchange, id = match.name](ApiResult<void> removed) {
      auto body = removed ? ApiResult<std::string>(deleted_response(id))
                          : ApiResult<std::string>(tl::unexpected(std::move(removed).error()));
      tell(service, Document{.exchange = exchange, .body = std::move(body)});
    };
    return tell(environment_.keeper, std::move(remove));
  }
  ResponseKeeper::Find find{.owner = owner, .id = match.name};
  find.reply = [service = self(), exchange, route = match.route](ApiResult<StoredResponse> stored) {
    ApiResult<std::string> body;
    if (!stored) {
      body = tl::unexpected(std::move(stored).error());
    } else if (route == Route::kCancelResponse) {
      body = tl::unexpected(not_in_background());
    } else if (route == Route::kResponseItems) {
      body = input_items_page(*stored, exchange->request().target);
    } else {
      body = std::move(stored->response);
    }
    tell(service, Document{.exchange = exchange, .body = std::move(body)});
  };
  tell(environment_.keeper, std::move(find));
}

}  // namespace strata::gateway
