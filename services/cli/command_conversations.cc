// strata conversations: what is parked, and what an operator does with it.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <filesystem>

#include "services/cli/cluster_client.h"
#include "services/cli/commands.h"
#include "services/cli/conversations_view.h"

namespace strata::cli {

namespace {

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

int print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  return 0;
}

Result<std::string> id_of(const ConversationsOptions& options) {
  TRY(const auto listed, list_snapshots(options.run_dir, {}));
  return find_id(listed, options.id);
}

// The cache manager has another working directory.
Result<std::string> path_of(const ConversationsOptions& options) {
  std::error_code error;
  const auto path = std::filesystem::absolute(options.file, error);
  if (error) return fail(Code::kInvalidArgument, "{}: {}", options.file, error.message());
  return path.string();
}

Result<v1::ListSnapshotsResponse> look_at(const ConversationsOptions& options) {
  v1::ListSnapshotsRequest request;
  TRY(*request.mutable_id(), id_of(options));
  TRY(auto listed, list_snapshots(options.run_dir, request));
  if (listed.snapshots().empty()) return fail(Code::kNotFound, "there is no snapshot {}", options.id);
  return listed;
}

Result<uint32_t> drop(const ConversationsOptions& options) {
  if (options.id.empty() && !options.all)
    return fail(Code::kInvalidArgument, "nothing to drop: name a snapshot, or --all");
  v1::DropSnapshotsRequest request;
  request.set_all(options.all);
  if (!options.all) {
    if (options.conversation) {
      TRY(const auto listed, look_at(options));
      request.set_history(listed.snapshots(0).history());
    } else {
      TRY(*request.mutable_id(), id_of(options));
    }
  }
  TRY(const auto response, drop_snapshots(options.run_dir, request));
  return response.dropped();
}

Result<v1::ExportSnapshotResponse> write_file(const ConversationsOptions& options) {
  v1::ExportSnapshotRequest request;
  TRY(*request.mutable_path(), path_of(options));
  TRY(*request.mutable_id(), id_of(options));
  return export_snapshot(options.run_dir, request);
}

Result<v1::ImportSnapshotResponse> read_file(const ConversationsOptions& options) {
  v1::ImportSnapshotRequest request;
  TRY(*request.mutable_path(), path_of(options));
  return import_snapshot(options.run_dir, request);
}

}  // namespace

int run_conversations_list(const ConversationsOptions& options) {
  const auto listed = list_snapshots(options.run_dir, {});
  if (!listed) return report_answer(options.run_dir, listed.error());
  return print(options.json ? conversations_json(*listed) : conversations_text(*listed, now_ms()));
}

int run_conversations_show(const ConversationsOptions& options) {
  const auto listed = look_at(options);
  if (!listed) return report_answer(options.run_dir, listed.error());
  return print(options.json ? snapshot_json(*listed) : snapshot_text(*listed, now_ms()));
}

int run_conversations_drop(const ConversationsOptions& options) {
  const auto dropped = drop(options);
  if (!dropped) return report_answer(options.run_dir, dropped.error());
  return print(options.json ? fmt::format("{{\"dropped\":{}}}\n", *dropped)
                            : fmt::format("dropped {} snapshot{}\n", *dropped, *dropped == 1 ? "" : "s"));
}

int run_conversations_export(const ConversationsOptions& options) {
  const auto written = write_file(options);
  if (!written) return report_answer(options.run_dir, written.error());
  return print(options.json ? fmt::format("{{\"bytes\":{}}}\n", written->bytes())
                            : fmt::format("{}: {} bytes\n", options.file, written->bytes()));
}

int run_conversations_import(const ConversationsOptions& options) {
  const auto read = read_file(options);
  if (!read) return report_answer(options.run_dir, read.error());
  const v1::Snapshot& snapshot = read->snapshot();
  return print(options.json
                   ? snapshot_json(snapshot)
                   : fmt::format("parked as {}, {} tokens\n", id_text(snapshot.id()), snapshot.position()));
}

}  // namespace strata::cli
