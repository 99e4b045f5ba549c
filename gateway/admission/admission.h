#pragma once
// Who may use the engine's sequences, and who waits: a bounded queue (rules K4, H8). Whose turn it is says
// turns.h. A ticket stands for one request from submit() to leave(). While the engine is away nobody new is
// admitted; who holds a sequence keeps it.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <variant>
#include <vector>

#include "gateway/admission/turns.h"
#include "gateway/api/api_error.h"
#include "gateway/conversations/conversation_types.h"
#include "gateway/engine/engine_client.h"
#include "services/actor/actor.h"

namespace strata::gateway {

// What a ticket hears.
struct Queued {
  uint32_t position = 0;  // 1: next
};
struct Granted {
  EngineInfo engine;
};
struct Refused {
  ApiError error;
};
struct EngineBack {
  EngineInfo engine;
};
using AdmissionNews = std::variant<Queued, Granted, Refused, EngineBack>;

// For /ready, /metrics and the status.
struct AdmissionView {
  uint32_t running = 0;  // sequences
  uint32_t waiting = 0;  // requests
  bool full = false;     // one more would be refused
};

struct AdmissionOptions {
  uint32_t sequences = 1;  // until the engine says how many it has
  uint32_t queue_limit = 0;
  uint32_t requests_per_key = 0;  // that run or wait; 0: as many as there is room for
};

class Admission : public actor::Actor {
 public:
  using Reply = std::function<void(AdmissionNews)>;

  struct Submit {
    TicketId ticket = 0;
    NamespaceId key = {};  // whose request it is; all the same where no keys are wanted
    int32_t priority = 0;  // lower comes earlier
    bool no_wait = false;  // refuse rather than wait for an engine that is not there
    // One more sequence for a request that runs: waits for its turn like a request, but is none, for the
    // queue's limit as for its key's. A request should have one of them in line at most.
    bool further = false;
    Reply reply = {};
  };
  struct Leave {
    TicketId ticket = 0;
  };
  struct AskPosition {
    TicketId ticket = 0;
  };
  // The ticket's call broke because the engine went away; EngineBack follows when it is there again.
  struct EngineLost {
    TicketId ticket = 0;
  };
  struct Drain {};

  // on_change: hears the view after every change. on_loss: a ticket said that the engine is gone. Both in
  // this mailbox.
  Admission(std::shared_ptr<actor::Executor> executor, AdmissionOptions options,
            std::function<void(const AdmissionView&)> on_change, std::function<void()> on_loss);

  void on(Submit submit);
  void on(Leave leave);
  void on(AskPosition ask);
  void on(EngineLost lost);
  void on(EngineState state);
  void on(Drain);

 private:
  struct Waiting {
    InLine place = {};
    Reply reply = {};
    bool further = false;
  };
  struct Running {
    NamespaceId key = {};
    Reply reply = {};
    bool further = false;
    bool waits_for_engine = false;
  };

  uint32_t free_sequences() const;
  bool ready() const { return engine_.phase == EngineState::Phase::kReady; }
  uint32_t waiting_requests() const;
  bool full() const;
  uint32_t requests_of(const NamespaceId& key) const;
  std::vector<TicketId> order() const;
  Line in_line() const;
  std::vector<Waiting>::iterator find_waiting(TicketId ticket);
  void grant_what_fits();
  void changed();

  AdmissionOptions options_;
  std::function<void(const AdmissionView&)> on_change_;
  std::function<void()> on_loss_;
  EngineState engine_;
  bool ever_ready_ = false;
  bool draining_ = false;
  std::vector<Waiting> waiting_;  // in order of arrival
  TurnHistory history_;
  std::map<TicketId, Running> running_;
};

}  // namespace strata::gateway
