#pragma once
// One HTTP connection: requests in, one after another, and their responses out. While a request is being
// answered the connection goes on reading, so that a client that leaves is noticed at once and not only at
// the next write (rule H9).

#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "gateway/http/http_server.h"

namespace strata::gateway {

class Connection;

// What the connections of one server share. HTTP thread only.
struct ConnectionContext {
  HttpOptions options;
  GatewayProbe* probe = nullptr;
  HttpHandlers handlers;
  std::set<Connection*> open;
  bool stopping = false;
  std::string id_prefix;  // of request ids, another one with every start
  uint64_t last_id = 0;

  std::string next_request_id();
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  static void start(boost::asio::ip::tcp::socket socket, std::shared_ptr<ConnectionContext> context);

  virtual ~Connection() = default;
  virtual bool idle() const = 0;  // no request is being answered
  // Of an idle one while the server stops: in good order, soon. May be called again.
  virtual void end() = 0;
  virtual void close() = 0;  // at once
};

}  // namespace strata::gateway
