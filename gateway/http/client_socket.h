#pragma once
// The socket of one connection, plain or with TLS on it: a stream for Asio and Beast that reads and writes
// what the client means, whichever it is. HTTP thread only; one read and one write may be under way.

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <memory>
#include <optional>
#include <utility>

#include "gateway/http/tls_certificate.h"

namespace strata::gateway {

class ClientSocket {
 public:
  using tcp = boost::asio::ip::tcp;
  using error_code = boost::system::error_code;
  using executor_type = tcp::socket::executor_type;

  // tls: nullptr: plain.
  ClientSocket(tcp::socket socket, std::shared_ptr<TlsCertificate> tls)
      : socket_(std::move(socket)), certificate_(std::move(tls)) {}
  ClientSocket(const ClientSocket&) = delete;
  ClientSocket& operator=(const ClientSocket&) = delete;

  enum class Greeting {
    kDone,
    kPlainHttp,  // the client speaks http where https is wanted; the socket is plain now, nothing is read yet
    kFailed,     // it left, or cannot agree with us; it has been told why
  };
  // Before anything else. The caller limits its time, by close().
  boost::asio::awaitable<Greeting> greet();
  // Tells a client behind TLS that nothing was cut off, and waits for its word; from then on reads take the
  // bytes as they come. The caller limits its time.
  boost::asio::awaitable<void> say_goodbye();

  executor_type get_executor() { return socket_.get_executor(); }
  tcp::socket& tcp_socket() { return socket_; }

  template <class Buffers, class Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    if (tls_ && !said_goodbye_) return tls_->async_read_some(buffers, std::forward<Token>(token));
    return socket_.async_read_some(buffers, std::forward<Token>(token));
  }
  template <class Buffers, class Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    if (tls_) return tls_->async_write_some(buffers, std::forward<Token>(token));
    return socket_.async_write_some(buffers, std::forward<Token>(token));
  }

 private:
  tcp::socket socket_;
  std::shared_ptr<TlsCertificate> certificate_;
  std::optional<boost::asio::ssl::stream<tcp::socket&>> tls_;
  bool said_goodbye_ = false;
};

}  // namespace strata::gateway
