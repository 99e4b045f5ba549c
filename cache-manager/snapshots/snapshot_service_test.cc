// The Snapshots service over a real socket: what goes over the wire, what is refused, and what becomes of
// answers and watchers that nobody reads.

#include "cache-manager/snapshots/snapshot_service.h"

#include <grpcpp/grpcpp.h>

#include <gmock/gmock.h>

#include "cache-manager/snapshots/snapshot_fixture.h"
#include "cache-manager/snapshots/snapshot_wire.h"

namespace strata::cache_manager {
namespace {

class SnapshotServiceTest : public SnapshotFixture {
 protected:
  ~SnapshotServiceTest() override {
    if (server_) server_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(100));
  }
  void serve() {
    start();
    service_ = std::make_unique<SnapshotService>(actor_);
    grpc::ServerBuilder builder;
    const std::string address = "unix:" + folder_ + "/s";
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    CHECK(server_ != nullptr);
    // So that little is on its way to a client that does not read.
    grpc::ChannelArguments small;
    small.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    small.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 1024);
    stub_ =
        v1::Snapshots::NewStub(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), small));
  }
  static void limit(grpc::ClientContext& context, std::chrono::milliseconds timeout = kPatience) {
    context.set_deadline(std::chrono::system_clock::now() + timeout);
  }
  // A unary call of the stub.
  template <class Request, class Response>
  grpc::Status call(grpc::Status (v1::Snapshots::Stub::*method)(grpc::ClientContext*, const Request&,
                                                                Response*),
                    const Request& request, Response& response,
                    std::chrono::milliseconds timeout = kPatience) {
    grpc::ClientContext context;
    limit(context, timeout);
    return (stub_.get()->*method)(&context, request, &response);
  }

  struct Attached {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::AttachSnapshotsResponse>> reader;
    v1::AttachSnapshotsResponse grant;
  };
  std::unique_ptr<Attached> attach_over_wire() {
    auto attached = std::make_unique<Attached>();
    limit(attached->context);
    v1::AttachSnapshotsRequest request;
    request.set_pid(static_cast<uint32_t>(::getpid()));
    const auto identity = snapshot::serialize(snapshot::test_identity());
    request.set_identity(identity.data(), identity.size());
    attached->reader = stub_->Attach(&attached->context, request);
    CHECK(attached->reader->Read(&attached->grant));
    attachment_ = attached->grant.attachment();
    view_ = std::move(*snapshot::RamPoolView::attach(
        attached->grant.segment(), attached->grant.segment_bytes(), attached->grant.instance_id()));
    return attached;
  }
  v1::ReserveSnapshotRequest reserve_request(const TestTokens& tokens) {
    v1::ReserveSnapshotRequest request;
    request.set_attachment(attachment_);
    request.set_name_space(test_namespace().bytes());
    request.mutable_tokens()->Add(tokens.begin(), tokens.end());
    v1::TokenRange& generated = *request.add_generated();
    generated.set_begin(2);
    generated.set_end(3);
    request.set_kind(v1::SNAPSHOT_KIND_END);
    request.set_cost_seconds(0.5);
    return request;
  }

  std::unique_ptr<SnapshotService> service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::Snapshots::Stub> stub_;
};

TEST_F(SnapshotServiceTest, ParksAndGivesBackOverTheWire) {
  serve();
  const auto attached = attach_over_wire();
  const TestTokens tokens = test_tokens(10);
  v1::ReserveSnapshotResponse reserved;
  ASSERT_TRUE(call(&v1::Snapshots::Stub::Reserve, reserve_request(tokens), reserved).ok());
  ASSERT_EQ(reserved.pages_size(), 3);

  v1::CommitSnapshotRequest commit_request;
  commit_request.set_attachment(attachment_);
  commit_request.set_ticket(reserved.ticket());
  snapshot::Reservation as_store;
  as_store.fixed = {reserved.fixed().offset(), reserved.fixed().bytes()};
  for (const v1::PageToCopy& page : reserved.pages())
    as_store.pages.push_back({.page_index = page.page(),
                              .tokens = page.tokens(),
                              .extent = {page.extent().offset(), page.extent().bytes()}});
  const auto checksums = copy(as_store, tokens);
  commit_request.mutable_part_checksums()->Add(checksums.parts.begin(), checksums.parts.end());
  commit_request.mutable_page_checksums()->Add(checksums.pages.begin(), checksums.pages.end());
  v1::CommitSnapshotResponse committed;
  ASSERT_TRUE(call(&v1::Snapshots::Stub::Commit, commit_request, committed).ok());

  v1::OpenSnapshotRequest open_request;
  open_request.set_attachment(attachment_);
  open_request.set_id(reserved.id());
  v1::OpenSnapshotResponse opened;
  ASSERT_TRUE(call(&v1::Snapshots::Stub::Open, open_request, opened).ok());
  snapshot::OpenSnapshot open{
      .ticket = opened.ticket(),
      .id = hash_from_wire(reserved.id(), "id").value(),
      .position = opened.tokens(),
      .fixed = {opened.fixed().offset(), opened.fixed().bytes()},
      .part_checksums = {opened.part_checksums().begin(), opened.part_checksums().end()}};
  for (const v1::StoredPage& page : opened.pages())
    open.pages.push_back({.page_index = page.page(),
                          .tokens = page.tokens(),
                          .extent = {page.extent().offset(), page.extent().bytes()},
                          .checksum = page.checksum()});
  EXPECT_EQ(compare(open, tokens), "");
  EXPECT_FALSE(opened.from_disk());
  v1::ReleaseSnapshotRequest release_request;
  release_request.set_attachment(attachment_);
  release_request.set_ticket(opened.ticket());
  v1::ReleaseSnapshotResponse released;
  EXPECT_TRUE(call(&v1::Snapshots::Stub::Release, release_request, released).ok());
  EXPECT_EQ(call(&v1::Snapshots::Stub::Release, release_request, released).error_code(),
            grpc::StatusCode::NOT_FOUND);

  v1::ListSnapshotsRequest list_request;
  list_request.set_id(reserved.id());
  v1::ListSnapshotsResponse listed;
  ASSERT_TRUE(call(&v1::Snapshots::Stub::List, list_request, listed).ok());
  ASSERT_EQ(listed.snapshots_size(), 1);
  const v1::Snapshot& snapshot = listed.snapshots(0);
  EXPECT_EQ(snapshot.id(), reserved.id());
  EXPECT_EQ(snapshot.name_space(), test_namespace().bytes());
  EXPECT_EQ(snapshot.kind(), v1::SNAPSHOT_KIND_END);
  EXPECT_EQ(snapshot.position(), 10u);
  EXPECT_EQ(snapshot.cost_seconds(), 0.5);
  EXPECT_TRUE(snapshot.in_memory());
  EXPECT_FALSE(snapshot.on_disk());
  EXPECT_EQ(TestTokens(listed.tokens().begin(), listed.tokens().end()), tokens);
  ASSERT_EQ(listed.generated_size(), 1);
  EXPECT_EQ(listed.generated(0).begin(), 2u);
  EXPECT_EQ(listed.memory().snapshots(), 1u);
  EXPECT_EQ(listed.memory().budget_bytes(), options_.plan.ram_budget_bytes);
}

TEST_F(SnapshotServiceTest, RefusesWhatMakesNoSense) {
  serve();
  v1::AttachSnapshotsRequest nothing;
  nothing.set_pid(static_cast<uint32_t>(::getpid()));
  grpc::ClientContext context;
  limit(context);
  v1::AttachSnapshotsResponse none;
  const auto reader = stub_->Attach(&context, nothing);
  EXPECT_FALSE(reader->Read(&none));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);

  const auto attached = attach_over_wire();
  v1::ReserveSnapshotResponse reserved;
  const auto refused = [&](const std::function<void(v1::ReserveSnapshotRequest&)>& change) {
    auto request = reserve_request(test_tokens(10));
    change(request);
    return call(&v1::Snapshots::Stub::Reserve, request, reserved).error_code();
  };
  EXPECT_EQ(refused([](auto& r) { r.set_name_space("short"); }), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(refused([](auto& r) { r.set_kind(v1::SNAPSHOT_KIND_UNSPECIFIED); }),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(refused([](auto& r) { r.clear_tokens(); }), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(refused([](auto& r) { r.mutable_generated(0)->set_end(99); }),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(refused([](auto& r) { r.set_cost_seconds(-1); }), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(refused([](auto& r) { r.set_attachment(0); }), grpc::StatusCode::ABORTED);

  v1::OpenSnapshotRequest open_request;
  v1::OpenSnapshotResponse opened;
  EXPECT_EQ(call(&v1::Snapshots::Stub::Open, open_request, opened).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  v1::DropSnapshotsRequest drop_request;
  v1::DropSnapshotsResponse dropped;
  EXPECT_EQ(call(&v1::Snapshots::Stub::Drop, drop_request, dropped).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  drop_request.set_all(true);
  EXPECT_TRUE(call(&v1::Snapshots::Stub::Drop, drop_request, dropped).ok());
  drop_request.set_id(test_namespace().bytes());
  EXPECT_EQ(call(&v1::Snapshots::Stub::Drop, drop_request, dropped).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT)
      << "all, or one";
  v1::ExportSnapshotRequest export_request;
  export_request.set_id(test_namespace().bytes());
  export_request.set_path("relative");
  v1::ExportSnapshotResponse exported;
  EXPECT_EQ(call(&v1::Snapshots::Stub::Export, export_request, exported).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  v1::ImportSnapshotRequest import_request;
  import_request.set_path("relative");
  v1::ImportSnapshotResponse imported;
  EXPECT_EQ(call(&v1::Snapshots::Stub::Import, import_request, imported).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(SnapshotServiceTest, ExportsDropsAndImportsOverTheWire) {
  serve();
  const auto attached = attach_over_wire();
  const SnapshotId id = parked(test_tokens(8));
  v1::ExportSnapshotRequest export_request;
  export_request.set_id(id.bytes());
  export_request.set_path(folder_ + "/conversation");
  v1::ExportSnapshotResponse exported;
  ASSERT_TRUE(call(&v1::Snapshots::Stub::Export, export_request, exported).ok());
  EXPECT_EQ(exported.bytes(), std::filesystem::file_size(export_request.path()));
  v1::DropSnapshotsRequest drop_request;
  drop_request.set_id(id.bytes());
  v1::DropSnapshotsResponse dropped;
  ASSERT_TRUE(call(&v1::Snapshots::Stub::Drop, drop_request, dropped).ok());
  EXPECT_EQ(dropped.dropped(), 1u);
  v1::ImportSnapshotRequest import_request;
  import_request.set_path(export_request.path());
  v1::ImportSnapshotResponse imported;
  ASSERT_TRUE(call(&v1::Snapshots::Stub::Import, import_request, imported).ok());
  EXPECT_EQ(imported.snapshot().id(), id.bytes());
  EXPECT_EQ(fault(id, test_tokens(8)), "");
}

TEST_F(SnapshotServiceTest, TellsWatchersInOrder) {
  serve();
  const auto attached = attach_over_wire();
  const SnapshotId first = parked(test_tokens(5));
  grpc::ClientContext context;
  limit(context);
  const auto reader = stub_->Watch(&context, {});
  v1::WatchSnapshotsResponse event;
  ASSERT_TRUE(reader->Read(&event));
  EXPECT_EQ(event.begin().instance_id(), attached->grant.instance_id());
  const auto identity = snapshot::serialize(snapshot::test_identity());
  EXPECT_EQ(event.begin().identity().size(), identity.size());
  ASSERT_TRUE(reader->Read(&event));
  EXPECT_EQ(event.added().snapshot().id(), first.bytes());
  EXPECT_EQ(event.added().tokens_size(), 5);
  EXPECT_EQ(event.added().base(), "");
  ASSERT_TRUE(reader->Read(&event));
  EXPECT_TRUE(event.has_complete());
  const SnapshotId second = parked(test_tokens(7));
  ASSERT_TRUE(reader->Read(&event));
  EXPECT_EQ(event.added().snapshot().id(), second.bytes());
  EXPECT_EQ(event.added().base(), first.bytes());
  EXPECT_EQ(event.added().base_tokens(), 5u);
  EXPECT_EQ(event.added().tokens_size(), 2);
  ASSERT_TRUE(ask<Result<uint32_t>>(SnapshotActor::Drop{.id = first, .reply = {}}));
  ASSERT_TRUE(reader->Read(&event));
  EXPECT_EQ(event.removed().id(), first.bytes());
  EXPECT_EQ(event.removed().cause(), "dropped");
  context.TryCancel();
  EXPECT_FALSE(reader->Finish().ok());
}

TEST_F(SnapshotServiceTest, CutsOffAWatcherThatDoesNotRead) {
  budget_of_states(2);
  serve();
  const auto attached = attach_over_wire();
  grpc::ClientContext context;
  limit(context);
  const auto reader = stub_->Watch(&context, {});
  v1::WatchSnapshotsResponse event;
  ASSERT_TRUE(reader->Read(&event));
  // Each is told with its tokens, and its removal: more than connections and backlog hold.
  for (int i = 0; i < 4000; ++i) ASSERT_TRUE(park(test_tokens(8, 10 * i)));
  uint32_t read = 0;
  while (reader->Read(&event)) ++read;
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_LT(read, 7000u);
}

// The answer comes when its caller has given up: the memory must not stay reserved for nobody.
TEST_F(SnapshotServiceTest, TakesBackAnswersThatReachNobody) {
  serve();
  const auto attached = attach_over_wire();
  const SnapshotId id = parked(test_tokens(4, 500));
  const uint64_t used_bytes = room().ram.used_bytes;
  std::promise<void> go_on;
  actor_->executor().post([&, future = go_on.get_future().share()] { future.wait(); });
  v1::ReserveSnapshotResponse reserved;
  EXPECT_EQ(call(&v1::Snapshots::Stub::Reserve, reserve_request(test_tokens(8)), reserved,
                 std::chrono::milliseconds(50))
                .error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  v1::OpenSnapshotRequest open_request;
  open_request.set_attachment(attachment_);
  open_request.set_id(id.bytes());
  v1::OpenSnapshotResponse opened;
  EXPECT_EQ(
      call(&v1::Snapshots::Stub::Open, open_request, opened, std::chrono::milliseconds(50)).error_code(),
      grpc::StatusCode::DEADLINE_EXCEEDED);
  go_on.set_value();
  EXPECT_TRUE(eventually([&] { return room().ram.used_bytes == used_bytes; }));
  // Nobody has it open any more: its memory can be had.
  EXPECT_TRUE(ask<Result<uint32_t>>(SnapshotActor::Drop{.id = id, .reply = {}}));
  EXPECT_TRUE(eventually([&] { return room().ram.used_bytes == 0; }));
}

TEST_F(SnapshotServiceTest, AStreamThatBreaksEndsTheAttachment) {
  serve();
  auto attached = attach_over_wire();
  attached->context.TryCancel();
  EXPECT_FALSE(attached->reader->Finish().ok());
  EXPECT_TRUE(eventually([&] { return reserve(test_tokens(8)).error().code() == Code::kAborted; }));
  attached = attach_over_wire();
  EXPECT_TRUE(reserve(test_tokens(8)));
}

TEST(SnapshotWire, HashesAreTheirUpperHalfFirst) {
  const snapshot::Hash128 hash{.high = 0x0102030405060708, .low = 0xf1f2f3f4f5f6f7f8};
  EXPECT_EQ(hash.bytes(), "\x01\x02\x03\x04\x05\x06\x07\x08\xf1\xf2\xf3\xf4\xf5\xf6\xf7\xf8");
  EXPECT_EQ(hash_from_wire(hash.bytes(), "id").value(), hash);
  EXPECT_THAT(hash_from_wire("abc", "history").error().message(),
              testing::HasSubstr("history: an id has 16 bytes, got 3"));
  EXPECT_TRUE(optional_hash_from_wire("", "id").value().is_zero());
  EXPECT_FALSE(optional_hash_from_wire("abc", "id"));
}

}  // namespace
}  // namespace strata::cache_manager
