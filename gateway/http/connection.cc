#include "gateway/http/connection.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cctype>
#include <optional>

#include "gateway/api/json_text.h"
#include "gateway/http/client_socket.h"
#include "gateway/http/routes.h"
#include "services/obs/log.h"

namespace strata::gateway {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using std::chrono::milliseconds;

constexpr uint32_t kHeaderBytesMax = 64 * 1024;
constexpr std::size_t kWriteSliceBytes = 64 * 1024;
// Bytes of following requests that are taken in while one is being answered.
constexpr std::size_t kPipelinedBytesMax = 64 * 1024;
constexpr std::size_t kReadBytes = 16 * 1024;
// What is read and not yet understood, at most: what is sent ahead, and lines that do not end (of chunks and
// behind them).
constexpr std::size_t kUnreadBytesMax = 256 * 1024;
static_assert(kUnreadBytesMax > kPipelinedBytesMax + kReadBytes && kUnreadBytesMax > kHeaderBytesMax);
// In the kernel, per connection: a client that does not read costs this much at most, beside the exchange's
// own limit.
constexpr int kSendBufferBytes = 128 * 1024;
// A refused client that is still sending gets this long to read why.
constexpr milliseconds kLingerTime{2000};
constexpr std::size_t kLingerBytesMax = std::size_t{64} << 20;
// The body of a refused request is read and dropped up to this length; behind a longer one the connection
// ends.
constexpr uint64_t kSkippedBytesMax = 64 * 1024;
constexpr milliseconds kHangUpPollInterval{250};
// For the last words of a connection with TLS.
constexpr milliseconds kGoodbyeTime{1000};

struct Refusal {
  uint32_t status = 400;
  std::string message;
};

// What a request that cannot even be read is answered with; nullopt: nothing, the connection is gone.
std::optional<Refusal> refusal_of(const error_code& error, std::size_t body_bytes_max) {
  if (error == http::error::body_limit) {
    return Refusal{413, fmt::format("the request body is larger than {} bytes", body_bytes_max)};
  }
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return Refusal{431, fmt::format("the request's headers are larger than {} bytes", kHeaderBytesMax)};
  }
  if (error == http::error::end_of_stream) return {};
  if (error == http::error::partial_message) return Refusal{400, "the request ended before it was complete"};
  const bool malformed = error.category() == http::make_error_code(http::error::bad_method).category();
  if (malformed) return Refusal{400, fmt::format("malformed HTTP: {}", error.message())};
  return {};
}

class BeastConnection final : public Connection {
 public:
  BeastConnection(tcp::socket socket, std::shared_ptr<ConnectionContext> context)
      : context_(std::move(context)),
        socket_(std::move(socket), context_->options.tls),
        deadline_(socket_.get_executor()),
        wake_timer_(socket_.get_executor()),
        hang_up_timer_(socket_.get_executor()) {
    context_->open.insert(this);
    context_->probe->connections.Increment();
  }

  ~BeastConnection() override {
    context_->open.erase(this);
    context_->probe->connections.Decrement();
  }

  bool idle() const override { return exchange_ == nullptr; }

  // Whatever is waited for at the socket is given up, and run() comes to its last words.
  void end() override {
    error_code ignored;
    socket_.tcp_socket().cancel(ignored);
  }

  void close() override {
    error_code ignored;
    socket_.tcp_socket().close(ignored);
    deadline_.cancel();
    hang_up_timer_.cancel();
    if (exchange_ != nullptr) exchange_->set_client_gone();
    wake();
  }

  asio::awaitable<void> run() {
    error_code ignored;
    tcp::socket& tcp_socket = socket_.tcp_socket();
    tcp_socket.set_option(tcp::no_delay(true), ignored);
    tcp_socket.set_option(asio::socket_base::send_buffer_size(kSendBufferBytes), ignored);
    const bool greeted = co_await greet();
    while (greeted && tcp_socket.is_open() && !context_->stopping) {
      std::shared_ptr<Exchange> exchange = co_await read_request();
      if (exchange == nullptr) break;
      const bool go_on = co_await answer(std::move(exchange));
      if (!go_on) break;
    }
    arm_deadline(kGoodbyeTime);
    co_await socket_.say_goodbye();
    deadline_.cancel();
    tcp_socket.shutdown(tcp::socket::shutdown_both, ignored);
    tcp_socket.close(ignored);
  }

 private:
  std::shared_ptr<BeastConnection> self() {
    return std::static_pointer_cast<BeastConnection>(shared_from_this());
  }

  // False: the connection ends here.
  asio::awaitable<bool> greet() {
    arm_deadline(context_->options.handshake_timeout);
    const auto greeting = co_await socket_.greet();
    deadline_.cancel();
    if (greeting == ClientSocket::Greeting::kPlainHttp) {
      Refusal refusal{.status = 400, .message = "this port speaks https, and the request came as plain http"};
      co_await refuse(std::move(refusal));
    }
    co_return greeting == ClientSocket::Greeting::kDone;
  }

  // ---- reading

  // With its body, or with its response if the header was enough to refuse it. nullptr: the connection ends.
  asio::awaitable<std::shared_ptr<Exchange>> read_request() {
    error_code error;
    arm_deadline(context_->options.idle_timeout);
    while (only_line_ends()) {
      const std::size_t read = co_await socket_.async_read_some(
          buffer_.prepare(kReadBytes), asio::redirect_error(asio::use_awaitable, error));
      if (error) co_return nullptr;
      buffer_.commit(read);
    }
    arm_deadline(context_->options.request_timeout);
    parser_.emplace();
    parser_->header_limit(kHeaderBytesMax);
    parser_->body_limit(context_->options.body_bytes_max);
    error = co_await read_header();
    std::shared_ptr<Exchange> exchange;
    if (!error) {
      exchange = make_exchange();
      if (auto refusal = context_->handlers.screen(*exchange)) {
        if (!can_skip_body()) exchange->set_close_after();
        exchange->respond(std::move(*refusal));
        co_return exchange;
      }
      error = co_await read_body();
    }
    deadline_.cancel();
    if (!error) {
      exchange->set_body(std::move(parser_->get().body()));
      co_return exchange;
    }
    if (auto refusal = refusal_of(error, context_->options.body_bytes_max))
      co_await refuse(std::move(*refusal));
    co_return nullptr;
  }

  // Old clients send a line end behind a body (RFC 9112, 2.2); it is dropped. True: there is nothing else
  // yet.
  bool only_line_ends() {
    const auto* bytes = static_cast<const char*>(buffer_.data().data());
    const std::string_view text(bytes, buffer_.size());
    const std::size_t begin = std::min(text.find_first_not_of("\r\n"), text.size());
    buffer_.consume(begin);
    return buffer_.size() == 0;
  }

  // The parser's own limit is for one line (Boost 1.81), so the sum is kept here.
  asio::awaitable<error_code> read_header() {
    error_code error;
    std::size_t parsed = 0;
    while (!error && !parser_->is_header_done()) {
      parsed += co_await http::async_read_some(socket_, buffer_, *parser_,
                                               asio::redirect_error(asio::use_awaitable, error));
      if (!error && parsed > kHeaderBytesMax) error = http::error::header_limit;
    }
    co_return error;
  }

  asio::awaitable<error_code> read_body() {
    error_code error;
    if (parser_->is_done()) co_return error;
    if (expects_continue()) {
      static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
      co_await asio::async_write(socket_, asio::buffer(kContinue),
                                 asio::redirect_error(asio::use_awaitable, error));
    }
    if (!error) {
      co_await http::async_read(socket_, buffer_, *parser_, asio::redirect_error(asio::use_awaitable, error));
    }
    co_return error;
  }

  // The client sends its body when it is told to, or after a while. HTTP/1.0 does not know it (RFC 9110,
  // 10.1.1).
  bool expects_continue() const {
    const auto& message = parser_->get();
    return message.version() >= 11 && beast::iequals(message[http::field::expect], "100-continue");
  }

  // Of a body that waits to be asked for nobody knows whether it will come.
  bool can_skip_body() const {
    if (parser_->is_done()) return true;
    const auto length = parser_->content_length();
    return length && *length <= kSkippedBytesMax && !expects_continue();
  }

  // From the header; the body is not there yet.
  std::shared_ptr<Exchange> make_exchange() {
    const auto& message = parser_->get();
    HttpRequest request;
    request.method = message.method_string();
    request.target = message.target();
    for (const auto& field : message) {
      std::string name(field.name_string());
      for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      request.headers.emplace_back(std::move(name), std::string(field.value()));
    }
    request.http_1_0 = message.version() < 11;
    request.keep_alive = message.keep_alive();
    request.id = context_->next_request_id();
    return std::make_shared<Exchange>(std::move(request), [weak = std::weak_ptr<BeastConnection>(self())] {
      if (auto alive = weak.lock()) alive->wake();
    });
  }

  // The request could not be read, so nobody knows where the next one would begin: answer and close.
  asio::awaitable<void> refuse(Refusal refusal) {
    HttpRequest request;
    if (parser_) request.target = parser_->get().target();  // empty if not even this could be read
    request.id = context_->next_request_id();
    obs::info("http", "{} refused {}: {}", request.id, refusal.status, refusal.message);
    context_->probe->response(refusal.status);
    ApiError reason = invalid_request(std::move(refusal.message));
    reason.status = refusal.status;
    HttpResponse response = error_response(reason, dialect_of(request.target));
    std::string out =
        format_head(request, response, fmt::format("Content-Length: {}\r\n", response.body.size()),
                    /*close=*/true) +
        response.body;
    error_code error;
    arm_deadline(kLingerTime);
    co_await asio::async_write(socket_, asio::buffer(out), asio::redirect_error(asio::use_awaitable, error));
    if (!error) co_await linger();
  }

  // Closes slowly: a reset would take the response from a client that is still sending.
  asio::awaitable<void> linger() {
    error_code error;
    arm_deadline(kLingerTime);
    co_await socket_.say_goodbye();
    socket_.tcp_socket().shutdown(tcp::socket::shutdown_send, error);
    std::size_t drained = buffer_.size();
    buffer_.clear();
    while (!error && drained < kLingerBytesMax) {
      drained += co_await socket_.async_read_some(buffer_.prepare(kReadBytes),
                                                  asio::redirect_error(asio::use_awaitable, error));
    }
  }

  // ---- answering

  // False: the connection ends here.
  asio::awaitable<bool> answer(std::shared_ptr<Exchange> exchange) {
    const auto begin = std::chrono::steady_clock::now();
    exchange_ = std::move(exchange);
    const bool refused = exchange_->started();  // on its header
    if (!refused) {
      start_watch();
      context_->handlers.serve(exchange_);
    }
    const bool sent = co_await send_response();
    if (!refused) co_await stop_watch();
    log_request(std::chrono::steady_clock::now() - begin);
    const bool go_on = sent && !exchange_->close_after();
    exchange_.reset();
    if (!refused || !sent || parser_->is_done()) co_return go_on;
    if (go_on) co_return co_await skip_body();
    co_await linger();
    co_return false;
  }

  asio::awaitable<bool> skip_body() {
    error_code error;
    arm_deadline(context_->options.request_timeout);
    co_await http::async_read(socket_, buffer_, *parser_, asio::redirect_error(asio::use_awaitable, error));
    deadline_.cancel();
    co_return !error;
  }

  asio::awaitable<bool> send_response() {
    for (;;) {
      if (exchange_->aborted()) co_return false;
      std::string out = exchange_->take_buffer(kWriteSliceBytes);
      if (!out.empty()) {
        error_code error;
        arm_deadline(context_->options.write_timeout);
        co_await asio::async_write(socket_, asio::buffer(out),
                                   asio::redirect_error(asio::use_awaitable, error));
        deadline_.cancel();
        if (!error) continue;
        exchange_->set_client_gone();
        co_return false;
      }
      if (exchange_->finished()) co_return true;
      if (exchange_->client_gone()) co_return false;
      co_await wait_for_wake();
    }
  }

  void log_request(std::chrono::steady_clock::duration took) {
    const HttpRequest& request = exchange_->request();
    const uint32_t status = exchange_->status();
    if (status != 0) context_->probe->response(status);
    obs::info("http", "{} {} {} {} {:.1f}ms{}{}", request.id, header_safe(request.method).substr(0, 16),
              snippet(header_safe(request_path(request.target))), status,
              std::chrono::duration<double, std::milli>(took).count(),
              exchange_->client_gone() || exchange_->aborted() ? " client-gone" : "",
              exchange_->log_detail());
  }

  // ---- noticing that the client leaves

  void start_watch() {
    if (buffer_.size() >= kPipelinedBytesMax) return poll_for_hang_up();
    watching_ = true;
    auto on_read = [self = self()](const error_code& error, std::size_t read) {
      self->watching_ = false;
      self->buffer_.commit(read);
      self->wake();
      if (error == asio::error::operation_aborted || self->exchange_ == nullptr) return;
      if (error) return self->exchange_->set_client_gone();
      if (!self->watch_over_) self->start_watch();
    };
    watch_over_ = false;
    socket_.async_read_some(buffer_.prepare(kReadBytes),
                            asio::bind_cancellation_slot(watch_cancel_.slot(), std::move(on_read)));
  }

  // The client has sent so much ahead that reading on would cost memory; a closed socket still shows.
  void poll_for_hang_up() {
    hang_up_timer_.expires_after(kHangUpPollInterval);
    hang_up_timer_.async_wait([weak = std::weak_ptr<BeastConnection>(self())](const error_code& error) {
      auto self = weak.lock();
      if (error || self == nullptr || self->exchange_ == nullptr || !self->socket_.tcp_socket().is_open())
        return;
      pollfd state{.fd = self->socket_.tcp_socket().native_handle(), .events = POLLRDHUP, .revents = 0};
      if (::poll(&state, 1, 0) == 1 && (state.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) {
        self->exchange_->set_client_gone();
      } else {
        self->poll_for_hang_up();
      }
    });
  }

  asio::awaitable<void> stop_watch() {
    watch_over_ = true;
    hang_up_timer_.cancel();
    if (watching_) watch_cancel_.emit(asio::cancellation_type::terminal);
    while (watching_) co_await wait_for_wake();
  }

  // ---- waiting

  void wake() { wake_timer_.cancel(); }

  asio::awaitable<void> wait_for_wake() {
    error_code ignored;
    wake_timer_.expires_at(std::chrono::steady_clock::time_point::max());
    co_await wake_timer_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }

  // Whatever is going on at the socket must be over by then.
  void arm_deadline(milliseconds limit) {
    deadline_.expires_after(limit);
    deadline_.async_wait([weak = std::weak_ptr<BeastConnection>(self())](const error_code& error) {
      auto self = weak.lock();
      // A handler that was queued before the deadline moved on is out of date.
      if (error || self == nullptr || self->deadline_.expiry() > std::chrono::steady_clock::now()) return;
      self->close();
    });
  }

  std::shared_ptr<ConnectionContext> context_;
  ClientSocket socket_;
  asio::steady_timer deadline_, wake_timer_, hang_up_timer_;
  beast::flat_buffer buffer_{kUnreadBytesMax};
  std::optional<http::request_parser<http::string_body>> parser_;
  std::shared_ptr<Exchange> exchange_;  // of the request being answered
  asio::cancellation_signal watch_cancel_;
  bool watching_ = false;  // a read is under way
  bool watch_over_ = false;
};

asio::awaitable<void> run_connection(std::shared_ptr<BeastConnection> connection) {
  co_await connection->run();
}

}  // namespace

std::string ConnectionContext::next_request_id() { return fmt::format("{}{:06x}", id_prefix, ++last_id); }

void Connection::start(tcp::socket socket, std::shared_ptr<ConnectionContext> context) {
  auto executor = socket.get_executor();
  auto connection = std::make_shared<BeastConnection>(std::move(socket), std::move(context));
  asio::co_spawn(executor, run_connection(std::move(connection)), asio::detached);
}

}  // namespace strata::gateway
