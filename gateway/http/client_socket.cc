#include "gateway/http/client_socket.h"

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "services/obs/log.h"

namespace strata::gateway {

namespace asio = boost::asio;

namespace {

// A TLS client begins with a record of type 22, whoever speaks HTTP with the letters of a method.
bool begins_a_method(char first) { return first >= 'A' && first <= 'Z'; }

}  // namespace

asio::awaitable<ClientSocket::Greeting> ClientSocket::greet() {
  if (certificate_ == nullptr) co_return Greeting::kDone;
  error_code error;
  char first = 0;
  const auto place = asio::buffer(&first, 1);
  co_await socket_.async_receive(place, tcp::socket::message_peek,
                                 asio::redirect_error(asio::use_awaitable, error));
  if (error) co_return Greeting::kFailed;
  if (begins_a_method(first)) co_return Greeting::kPlainHttp;
  tls_.emplace(socket_, certificate_->context());
  co_await tls_->async_handshake(asio::ssl::stream_base::server,
                                 asio::redirect_error(asio::use_awaitable, error));
  if (!error) co_return Greeting::kDone;
  obs::info("http", "TLS handshake failed: {}", error.message());
  co_return Greeting::kFailed;
}

asio::awaitable<void> ClientSocket::say_goodbye() {
  if (!tls_ || said_goodbye_) co_return;
  said_goodbye_ = true;
  error_code ignored;  // the client may have left without a word
  co_await tls_->async_shutdown(asio::redirect_error(asio::use_awaitable, ignored));
}

}  // namespace strata::gateway
