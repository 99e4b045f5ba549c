#pragma once
// Where servers of tests listen: a port of 127.0.0.1 that the system chooses.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>

#include "services/sys/process.h"

namespace strata::cli {

class LoopbackListener {
 public:
  LoopbackListener() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
    ::listen(socket_.get(), 8);
    socklen_t length = sizeof address;
    ::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
  }
  uint16_t port() const { return port_; }
  // Not valid once stop() was called, by any thread. Nobody waits for a client's bytes for ever.
  sys::FileDescriptor accept() const {
    sys::FileDescriptor client(::accept(socket_.get(), nullptr, nullptr));
    const timeval timeout{.tv_sec = 20, .tv_usec = 0};
    if (client.valid()) ::setsockopt(client.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    return client;
  }
  void stop() const { ::shutdown(socket_.get(), SHUT_RDWR); }

 private:
  sys::FileDescriptor socket_;
  uint16_t port_ = 0;
};

}  // namespace strata::cli
