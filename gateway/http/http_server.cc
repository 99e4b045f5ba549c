#include "gateway/http/http_server.h"

#include <fmt/format.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <future>
#include <random>
#include <thread>

#include "gateway/http/connection.h"
#include "gateway/http/request_guard.h"
#include "services/obs/log.h"

namespace strata::gateway {

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr int kListenBacklog = 512;
constexpr std::chrono::milliseconds kAcceptPause{100};  // after a failure such as no free descriptors
constexpr std::chrono::milliseconds kStopPollInterval{10};
constexpr std::chrono::seconds kSayAgainInterval{10};

// The HTTP thread as a place for actors. They may outlive it: then nothing happens any more.
class HttpExecutor final : public actor::Executor {
 public:
  explicit HttpExecutor(const std::shared_ptr<asio::io_context>& context) : context_(context) {}
  void post(std::function<void()> work) override {
    if (auto context = context_.lock()) asio::post(*context, std::move(work));
  }
  void post_after(actor::Clock::duration delay, std::function<void()> work) override {
    auto context = context_.lock();
    if (context == nullptr) return;
    auto timer = std::make_shared<asio::steady_timer>(*context, delay);
    timer->async_wait([timer, work = std::move(work)](const error_code& error) {
      if (!error) work();
    });
  }
  actor::Clock::time_point now() const override { return actor::Clock::now(); }

 private:
  std::weak_ptr<asio::io_context> context_;
};

Code code_of(const error_code& error) {
  if (error == asio::error::address_in_use) return Code::kAlreadyExists;
  if (error == asio::error::access_denied) return Code::kPermissionDenied;
  return Code::kInvalidArgument;
}

std::string url_of(const tcp::endpoint& endpoint, bool tls) {
  const std::string_view scheme = tls ? "https" : "http";
  const std::string host = endpoint.address().to_string();
  return endpoint.address().is_v6() ? fmt::format("{}://[{}]:{}", scheme, host, endpoint.port())
                                    : fmt::format("{}://{}:{}", scheme, host, endpoint.port());
}

std::string random_prefix() {
  std::random_device random;
  return fmt::format("{:08x}", random());
}

}  // namespace

struct HttpServer::Impl : std::enable_shared_from_this<Impl> {
  std::shared_ptr<asio::io_context> io = std::make_shared<asio::io_context>(1);
  asio::executor_work_guard<asio::io_context::executor_type> work{io->get_executor()};
  std::shared_ptr<actor::Executor> executor = std::make_shared<HttpExecutor>(io);
  std::shared_ptr<ConnectionContext> connections = std::make_shared<ConnectionContext>();
  tcp::acceptor acceptor{*io};
  asio::steady_timer pause{*io};
  std::thread thread;
  uint64_t turned_away = 0;
  actor::Clock::time_point say_again_at = {};

  void accept() {
    acceptor.async_accept([self = shared_from_this()](const error_code& error, tcp::socket socket) {
      if (!self->acceptor.is_open()) return;
      if (error) return self->accept_later(error);
      if (self->connections->open.size() < self->connections->options.connections_max) {
        Connection::start(std::move(socket), self->connections);
      } else {
        self->turn_away();
      }
      self->accept();
    });
  }

  // The socket is closed. Said once in a while: whoever floods the server must not flood the log, too.
  void turn_away() {
    ++turned_away;
    const auto now = actor::Clock::now();
    if (now < say_again_at) return;
    say_again_at = now + kSayAgainInterval;
    obs::warn("http", "{} connections are open (gateway.connections_max); turned away so far: {}",
              connections->open.size(), turned_away);
  }

  void accept_later(const error_code& error) {
    obs::warn("http", "accept: {}", error.message());
    pause.expires_after(kAcceptPause);
    pause.async_wait([self = shared_from_this()](const error_code& cancelled) {
      if (!cancelled && self->acceptor.is_open()) self->accept();
    });
  }

  // HTTP thread. Idle connections end at once, the others when they have sent what they have, or when the
  // time is over.
  void close_connections(actor::Clock::time_point until, std::shared_ptr<std::promise<void>> done) {
    const bool over = actor::Clock::now() >= until;
    // A copy: closing takes connections out of the set sooner or later.
    for (Connection* connection : std::set<Connection*>(connections->open)) {
      if (over) {
        connection->close();
      } else if (connection->idle()) {
        connection->end();
      }
    }
    if (over || connections->open.empty()) return done->set_value();
    executor->post_after(kStopPollInterval,
                         [self = shared_from_this(), until, done] { self->close_connections(until, done); });
  }
};

HttpServer::HttpServer(HttpOptions options, GatewayProbe& probe) : impl_(std::make_shared<Impl>()) {
  impl_->connections->options = options;
  impl_->connections->probe = &probe;
  impl_->connections->id_prefix = random_prefix();
  impl_->thread = std::thread([io = impl_->io] { io->run(); });
}

HttpServer::~HttpServer() { stop(std::chrono::milliseconds(0)); }

std::shared_ptr<actor::Executor> HttpServer::executor() const { return impl_->executor; }

Result<std::string> HttpServer::listen(const std::string& address, HttpHandlers handlers) {
  auto wanted = parse_listen(address);
  if (!wanted) return fail(Code::kInvalidArgument, "gateway.listen: {} is not HOST:PORT", address);
  error_code error;
  tcp::resolver resolver(*impl_->io);
  auto found = resolver.resolve(wanted->host, std::to_string(wanted->port), tcp::resolver::passive, error);
  if (error || found.empty()) {
    return fail(Code::kInvalidArgument, "gateway.listen: {}: {}", address,
                error ? error.message() : "no such host");
  }
  const tcp::endpoint endpoint = found.begin()->endpoint();
  tcp::acceptor& acceptor = impl_->acceptor;
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(kListenBacklog, error);
  if (error) return fail(code_of(error), "gateway.listen: {}: {}", address, error.message());
  const std::string url = url_of(acceptor.local_endpoint(), impl_->connections->options.tls != nullptr);
  asio::post(*impl_->io, [impl = impl_, handlers = std::move(handlers)]() mutable {
    impl->connections->handlers = std::move(handlers);
    impl->accept();
  });
  return url;
}

void HttpServer::stop(std::chrono::milliseconds grace) {
  if (!impl_->thread.joinable()) return;
  auto done = std::make_shared<std::promise<void>>();
  auto closed = done->get_future();
  asio::post(*impl_->io, [impl = impl_, grace, done] {
    error_code ignored;
    impl->acceptor.close(ignored);
    impl->pause.cancel();
    impl->connections->stopping = true;
    impl->close_connections(actor::Clock::now() + grace, done);
  });
  closed.wait();
  impl_->work.reset();
  impl_->io->stop();
  impl_->thread.join();
  // What was cancelled has its handlers still to run; they let go of the connections.
  impl_->io->restart();
  impl_->io->poll();
}

}  // namespace strata::gateway
