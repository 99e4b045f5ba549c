#include "gateway/testing/fake_store.h"

#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include "gateway/testing/fake_states.h"
#include "services/rpc/server.h"
#include "strata/v1/snapshots.grpc.pb.h"

namespace strata::gateway::testing {

struct FakeStore::Impl {
  std::string run_dir;
  mutable std::mutex mutex;
  std::set<std::string> held;  // ids; guarded
  WatchLog<v1::WatchSnapshotsResponse> log;
  uint64_t instance = 100;
  std::unique_ptr<rpc::Server> server;

  class Service;
};

class FakeStore::Impl::Service final : public v1::Snapshots::Service {
 public:
  explicit Service(Impl* store) : store_(store), instance_(++store->instance) {}

  grpc::Status Watch(grpc::ServerContext* context, const v1::WatchSnapshotsRequest*,
                     grpc::ServerWriter<v1::WatchSnapshotsResponse>* writer) override {
    v1::WatchSnapshotsResponse begin;
    begin.mutable_begin()->set_instance_id(instance_);
    begin.mutable_begin()->set_identity(fake_identity());
    return store_->log.serve(*context, begin, *writer);
  }

 private:
  Impl* store_;
  const uint64_t instance_;
};

FakeStore::FakeStore(std::string run_dir) : impl_(std::make_unique<Impl>()) {
  impl_->run_dir = std::move(run_dir);
}

FakeStore::~FakeStore() { die(); }

void FakeStore::start() {
  rpc::ServerOptions options{.run_dir = impl_->run_dir,
                             .name = "cache-manager",
                             .status = [](v1::GetStatusResponse&) {},
                             .metrics = std::make_shared<obs::Metrics>(obs::Labels{}),
                             .config_hash = ""};
  std::vector<std::unique_ptr<grpc::Service>> services;
  services.push_back(std::make_unique<Impl::Service>(impl_.get()));
  auto server = rpc::Server::start(std::move(options), std::move(services));
  ASSERT_TRUE(server) << server.error().message();
  impl_->server = std::move(*server);
}

void FakeStore::die() { impl_->server.reset(); }

void FakeStore::park(const snapshot::SnapshotId& id, const snapshot::Hash128& name_space,
                     std::vector<int32_t> tokens, bool on_disk_only, const snapshot::SnapshotId& base,
                     uint32_t base_tokens) {
  v1::WatchSnapshotsResponse event;
  v1::SnapshotAdded& added = *event.mutable_added();
  added.mutable_snapshot()->set_id(id.bytes());
  added.mutable_snapshot()->set_name_space(name_space.bytes());
  added.mutable_snapshot()->set_in_memory(!on_disk_only);
  added.mutable_snapshot()->set_on_disk(true);
  if (!base.is_zero()) added.set_base(base.bytes());
  added.set_base_tokens(base_tokens);
  added.mutable_tokens()->Add(tokens.begin(), tokens.end());
  {
    std::scoped_lock lock(impl_->mutex);
    impl_->held.insert(id.bytes());
  }
  impl_->log.append(std::move(event));
}

bool FakeStore::holds(const std::string& id_bytes) const {
  std::scoped_lock lock(impl_->mutex);
  return impl_->held.contains(id_bytes);
}

void FakeStore::lose(const snapshot::SnapshotId& id) {
  std::scoped_lock lock(impl_->mutex);
  impl_->held.erase(id.bytes());
}

}  // namespace strata::gateway::testing
