// The views on their own; the commands against a cache manager of the test's own that has just this service.
#include <gmock/gmock.h>

#include <boost/json.hpp>
#include <cstdlib>
#include <filesystem>

#include "services/cli/commands.h"
#include "services/cli/conversations_view.h"
#include "services/rpc/server.h"
#include "strata/v1/snapshots.grpc.pb.h"

namespace strata::cli {
namespace {

namespace json = boost::json;
using ::testing::HasSubstr;
using ::testing::internal::CaptureStderr;
using ::testing::internal::CaptureStdout;
using ::testing::internal::GetCapturedStderr;
using ::testing::internal::GetCapturedStdout;

constexpr int64_t kNow = 1'000'000'000;

std::string id_of(char first, char rest = '\x11') {
  std::string id(16, rest);
  id[0] = first;
  return id;
}

v1::Snapshot snapshot(char first, v1::SnapshotKind kind, uint32_t position) {
  v1::Snapshot made;
  made.set_id(id_of(first));
  made.set_name_space(id_of('\x00', '\xff'));
  made.set_history(id_of('\x77'));
  made.set_kind(kind);
  made.set_position(position);
  made.set_in_memory(true);
  made.set_cost_seconds(1.25);
  made.set_bytes(3 << 19);
  made.set_created_ms(kNow - 185'000);
  made.set_used_ms(kNow - 12'000);
  return made;
}

v1::ListSnapshotsResponse sample() {
  v1::ListSnapshotsResponse listed;
  *listed.add_snapshots() = snapshot('\xa0', v1::SNAPSHOT_KIND_END, 1530);
  *listed.add_snapshots() = snapshot('\xa1', v1::SNAPSHOT_KIND_BEFORE_LAST_USER, 1000);
  listed.mutable_snapshots(1)->set_on_disk(true);
  listed.mutable_memory()->set_used_bytes(3 << 20);
  listed.mutable_memory()->set_budget_bytes(64 << 20);
  listed.mutable_memory()->set_snapshots(2);
  listed.mutable_disk()->set_used_bytes(1 << 20);
  listed.mutable_disk()->set_budget_bytes(128 << 20);
  listed.mutable_disk()->set_snapshots(1);
  listed.set_disk_folder("/var/strata");
  return listed;
}

TEST(ConversationsView, IsATable) {
  EXPECT_EQ(
      conversations_text(sample(), kNow),
      "memory   3.0 MiB of 64.0 MiB, 2 snapshots\n"
      "disk     1.0 MiB of 128.0 MiB, 1 snapshot in /var/strata\n"
      "\n"
      "id        conversation  kind             position  tiers              size     age  unused      cost\n"
      "a0111111  77111111      end                  1530  memory          1.5 MiB   3m05s     12s    1.25 s\n"
      "a1111111  77111111      before_last_user     1000  memory+disk     1.5 MiB   3m05s     12s    1.25 "
      "s\n");
}

TEST(ConversationsView, SaysWhyThereIsNoDiskAndThatNothingIsParked) {
  v1::ListSnapshotsResponse listed;
  EXPECT_THAT(conversations_text(listed, kNow),
              HasSubstr("disk     none is configured\nnothing is parked\n"));
  listed.set_disk_problem("/mnt: read-only");
  EXPECT_THAT(conversations_text(listed, kNow), HasSubstr("disk     none: /mnt: read-only\n"));
}

TEST(ConversationsView, ShowsAsManyDigitsAsTellTheIdsApart) {
  v1::ListSnapshotsResponse listed = sample();
  listed.mutable_snapshots(1)->set_id(listed.snapshots(0).id().substr(0, 15) + '\x12');
  EXPECT_THAT(conversations_text(listed, kNow), HasSubstr("a0111111111111111111111111111112  "));
}

TEST(ConversationsView, AClockThatWasSetBackGivesNoNegativeAge) {
  EXPECT_THAT(conversations_text(sample(), 0), HasSubstr("      0s      0s "));
}

TEST(ConversationsView, AnIdOfAnotherLengthIsNone) {
  EXPECT_EQ(id_text(id_of('\xa0')), "a0111111111111111111111111111111");
  EXPECT_EQ(id_text("short"), "?");
  EXPECT_EQ(id_text(""), "?");
}

TEST(ConversationsView, FindsIdsByTheirBeginning) {
  const auto listed = sample();
  EXPECT_EQ(find_id(listed, "a0").value(), id_of('\xa0'));
  EXPECT_EQ(find_id(listed, "a1111111").value(), id_of('\xa1'));
  const auto both = find_id(listed, "a");
  ASSERT_FALSE(both);
  EXPECT_EQ(both.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(both.error().message(), HasSubstr("2 ids begin with a, such as a0111111"));
  EXPECT_EQ(find_id(listed, "b").error().code(), Code::kNotFound);
  // One that is not listed may have been there: the cache manager knows.
  EXPECT_EQ(find_id(listed, id_text(id_of('\xb9', '\x0f'))).value(), id_of('\xb9', '\x0f'));
  for (const std::string& wrong :
       {std::string(), std::string("xyz"), std::string("A0"), std::string(33, '1')})
    EXPECT_EQ(find_id(listed, wrong).error().code(), Code::kInvalidArgument) << wrong;
}

TEST(ConversationsView, HasTheSameForPrograms) {
  const json::value parsed = json::parse(conversations_json(sample()));
  EXPECT_EQ(parsed.at("memory").at("budget_bytes").to_number<int>(), 64 << 20);
  EXPECT_EQ(parsed.at("disk").at("folder"), "/var/strata");
  EXPECT_TRUE(parsed.at("disk").at("problem").is_null());
  const json::value& second = parsed.at("snapshots").at(1);
  EXPECT_EQ(second.at("id").as_string(), id_text(id_of('\xa1')));
  EXPECT_EQ(second.at("conversation").as_string(), id_text(id_of('\x77')));
  EXPECT_EQ(second.at("kind"), "before_last_user");
  EXPECT_EQ(second.at("tiers").as_array().size(), 2u);
  EXPECT_EQ(second.at("position").to_number<int>(), 1000);
  EXPECT_EQ(second.at("bytes").to_number<int>(), 3 << 19);
  EXPECT_DOUBLE_EQ(second.at("cost_seconds").as_double(), 1.25);
}

// Has the two snapshots of sample(), and remembers what it was asked.
class FakeSnapshots final : public v1::Snapshots::Service {
 public:
  grpc::Status List(grpc::ServerContext*, const v1::ListSnapshotsRequest* request,
                    v1::ListSnapshotsResponse* response) override {
    const auto all = sample();
    if (request->id().empty()) {
      *response = all;
      return grpc::Status::OK;
    }
    for (const auto& each : all.snapshots())
      if (each.id() == request->id()) *response->add_snapshots() = each;
    if (response->snapshots().empty())
      return {grpc::StatusCode::NOT_FOUND, "it had to make room 5 s ago (budget)"};
    for (const int32_t token : {5, 6, 7, 8}) response->add_tokens(token);
    response->add_generated()->set_begin(1);
    response->mutable_generated(0)->set_end(3);
    return grpc::Status::OK;
  }
  grpc::Status Drop(grpc::ServerContext*, const v1::DropSnapshotsRequest* request,
                    v1::DropSnapshotsResponse* response) override {
    dropped = *request;
    response->set_dropped(request->id().empty() ? 2 : 1);
    return grpc::Status::OK;
  }
  grpc::Status Export(grpc::ServerContext*, const v1::ExportSnapshotRequest* request,
                      v1::ExportSnapshotResponse* response) override {
    exported = *request;
    response->set_bytes(4711);
    return grpc::Status::OK;
  }
  grpc::Status Import(grpc::ServerContext*, const v1::ImportSnapshotRequest* request,
                      v1::ImportSnapshotResponse* response) override {
    imported = *request;
    if (request->path().ends_with("foreign"))
      return {grpc::StatusCode::FAILED_PRECONDITION, "of another model: a, not b"};
    *response->mutable_snapshot() = sample().snapshots(0);
    return grpc::Status::OK;
  }

  v1::DropSnapshotsRequest dropped;
  v1::ExportSnapshotRequest exported;
  v1::ImportSnapshotRequest imported;
};

ConversationsOptions naming(const std::string& id, const std::string& file = "") {
  ConversationsOptions options;
  options.id = id;
  options.file = file;
  return options;
}
ConversationsOptions as_json(ConversationsOptions options) {
  options.json = true;
  return options;
}

class Conversations : public ::testing::Test {
 protected:
  Conversations() {
    std::string name = "/tmp/strata-test-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    auto owned = std::make_unique<FakeSnapshots>();
    service = owned.get();
    std::vector<std::unique_ptr<grpc::Service>> services;
    services.push_back(std::move(owned));
    auto started = rpc::Server::start({.run_dir = folder_,
                                       .name = "cache-manager",
                                       .status = [](v1::GetStatusResponse&) {},
                                       .metrics = std::make_shared<obs::Metrics>(obs::Labels{}),
                                       .config_hash = {}},
                                      std::move(services));
    if (!started) throw std::runtime_error(started.error().message());
    server_ = *std::move(started);
  }
  ~Conversations() override {
    server_.reset();
    std::filesystem::remove_all(folder_);
  }

  int run(int (*command)(const ConversationsOptions&), ConversationsOptions options) {
    options.run_dir = folder_;
    return run_at(command, options);
  }
  int run_at(int (*command)(const ConversationsOptions&), const ConversationsOptions& options) {
    CaptureStdout();
    CaptureStderr();
    const int code = command(options);
    std::fflush(stdout);
    out = GetCapturedStdout();
    errors = GetCapturedStderr();
    return code;
  }

  FakeSnapshots* service = nullptr;
  std::string out, errors;

 private:
  std::string folder_;
  std::unique_ptr<rpc::Server> server_;
};

TEST_F(Conversations, AreListed) {
  EXPECT_EQ(run(run_conversations_list, naming("")), 0);
  EXPECT_THAT(out, HasSubstr("a0111111  77111111      end"));
  EXPECT_EQ(run(run_conversations_list, as_json(naming(""))), 0);
  EXPECT_EQ(json::parse(out).at("snapshots").as_array().size(), 2u);
}

TEST_F(Conversations, AreShownWithTheirTokensOrWithWhyTheyAreGone) {
  EXPECT_EQ(run(run_conversations_show, naming("a1")), 0);
  EXPECT_THAT(out, HasSubstr("position      1000 tokens, 2 of them generated\n"));
  EXPECT_THAT(out, HasSubstr("tiers         memory+disk\n"));
  EXPECT_EQ(run(run_conversations_show, as_json(naming("a1"))), 0);
  EXPECT_EQ(json::parse(out).at("tokens"), json::parse("[5,6,7,8]"));
  EXPECT_EQ(json::parse(out).at("generated"), json::parse("[[1,3]]"));
  EXPECT_EQ(run(run_conversations_show, naming(id_text(id_of('\xb9')))), kExitFailed);
  EXPECT_THAT(errors, HasSubstr("it had to make room 5 s ago (budget)"));
  EXPECT_EQ(run(run_conversations_show, naming("b")), kExitFailed);
  EXPECT_THAT(errors, HasSubstr("no snapshot's id begins with b"));
  EXPECT_EQ(run(run_conversations_show, naming("a")), kExitFault);
  EXPECT_EQ(out, "");
}

TEST_F(Conversations, AreDroppedOneByOneAsAConversationOrAll) {
  EXPECT_EQ(run(run_conversations_drop, naming("a0")), 0);
  EXPECT_EQ(out, "dropped 1 snapshot\n");
  EXPECT_EQ(service->dropped.id(), id_of('\xa0'));
  EXPECT_FALSE(service->dropped.all());
  ConversationsOptions whole = naming("a0"), all = naming("");
  whole.conversation = true;
  all.all = true;
  EXPECT_EQ(run(run_conversations_drop, whole), 0);
  EXPECT_EQ(out, "dropped 2 snapshots\n");
  EXPECT_EQ(service->dropped.history(), id_of('\x77'));
  EXPECT_EQ(service->dropped.id(), "");
  EXPECT_EQ(run(run_conversations_drop, as_json(all)), 0);
  EXPECT_TRUE(service->dropped.all());
  EXPECT_EQ(json::parse(out).at("dropped").to_number<int>(), 2);
  EXPECT_EQ(run(run_conversations_drop, naming("")), kExitFault);
  EXPECT_THAT(errors, HasSubstr("nothing to drop"));
}

TEST_F(Conversations, GoToFilesAndComeBack) {
  EXPECT_EQ(run(run_conversations_export, naming("a0", "chat.snapshot")), 0);
  EXPECT_EQ(out, "chat.snapshot: 4711 bytes\n");
  EXPECT_EQ(service->exported.id(), id_of('\xa0'));
  EXPECT_EQ(service->exported.path(), (std::filesystem::current_path() / "chat.snapshot").string());
  EXPECT_EQ(run(run_conversations_export, as_json(naming("a0", "/x"))), 0);
  EXPECT_EQ(json::parse(out).at("bytes").to_number<int>(), 4711);
  EXPECT_EQ(run(run_conversations_import, naming("", "/x")), 0);
  EXPECT_EQ(out, "parked as a0111111111111111111111111111111, 1530 tokens\n");
  EXPECT_EQ(service->imported.path(), "/x");
  EXPECT_EQ(run(run_conversations_import, as_json(naming("", "/x"))), 0);
  EXPECT_EQ(json::parse(out).at("kind"), "end");
  EXPECT_EQ(run(run_conversations_import, naming("", "/foreign")), kExitFailed);
  EXPECT_THAT(errors, HasSubstr("of another model: a, not b"));
}

TEST_F(Conversations, NeedACluster) {
  ConversationsOptions options = naming("a", "/x");
  options.run_dir = "/tmp/strata-no-such-cluster";
  for (const auto command : {run_conversations_list, run_conversations_show, run_conversations_drop,
                             run_conversations_export, run_conversations_import}) {
    EXPECT_EQ(run_at(command, options), kExitNotRunning);
    EXPECT_THAT(errors, HasSubstr("no cluster runs in /tmp/strata-no-such-cluster"));
  }
}

}  // namespace
}  // namespace strata::cli
