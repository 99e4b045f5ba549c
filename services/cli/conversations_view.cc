#include "services/cli/conversations_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/json.hpp>
#include <vector>

#include "services/cli/text.h"
#include "services/rpc/snapshot_words.h"
#include "services/snapshot/hash128.h"

namespace strata::cli {

namespace json = boost::json;

namespace {

constexpr std::size_t kIdDigits = 32;
constexpr std::size_t kShortDigits = 8;

std::string_view kind_text(v1::SnapshotKind wire) {
  const auto kind = rpc::kind_from_wire(wire);
  return kind ? snapshot::kind_name(*kind) : "unknown";
}

std::vector<std::string_view> tiers_of(const v1::Snapshot& snapshot) {
  std::vector<std::string_view> tiers;
  if (snapshot.in_memory()) tiers.emplace_back("memory");
  if (snapshot.on_disk()) tiers.emplace_back("disk");
  return tiers;
}

std::string tiers_text(const v1::Snapshot& snapshot) {
  const auto tiers = tiers_of(snapshot);
  return tiers.empty() ? "-" : fmt::format("{}", fmt::join(tiers, "+"));
}

std::string bytes_text(uint64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

// Clocks are set back at times.
std::string age_text(int64_t then_ms, int64_t now_ms) {
  return duration_text(static_cast<double>(std::max<int64_t>(now_ms - then_ms, 0)) * 1e-3);
}

// As many digits as tell all ids apart.
std::size_t digits_shown(const v1::ListSnapshotsResponse& listed) {
  std::vector<std::string> ids;
  for (const v1::Snapshot& snapshot : listed.snapshots()) ids.push_back(id_text(snapshot.id()));
  std::ranges::sort(ids);
  std::size_t digits = kShortDigits;
  for (std::size_t i = 1; i < ids.size(); ++i) {
    const auto parted = std::ranges::mismatch(ids[i - 1], ids[i]).in1 - ids[i - 1].begin();
    digits = std::max(digits, static_cast<std::size_t>(parted) + 1);
  }
  return std::min(digits, kIdDigits);
}

std::string tier_text(std::string_view name, const v1::TierUse& use) {
  return fmt::format("{:<8} {} of {}, {} snapshot{}", name, bytes_text(use.used_bytes()),
                     bytes_text(use.budget_bytes()), use.snapshots(), use.snapshots() == 1 ? "" : "s");
}

std::string tiers_text(const v1::ListSnapshotsResponse& listed) {
  std::string out = tier_text("memory", listed.memory()) + "\n";
  if (!listed.disk_problem().empty()) return out + fmt::format("disk     none: {}\n", listed.disk_problem());
  if (listed.disk_folder().empty()) return out + "disk     none is configured\n";
  return out + fmt::format("{} in {}\n", tier_text("disk", listed.disk()), listed.disk_folder());
}

json::object tier_json(const v1::TierUse& use) {
  return {
      {"used_bytes", use.used_bytes()}, {"budget_bytes", use.budget_bytes()}, {"snapshots", use.snapshots()}};
}

json::object object_of(const v1::Snapshot& snapshot) {
  json::array tiers;
  for (const std::string_view tier : tiers_of(snapshot)) tiers.emplace_back(json::string_view(tier));
  return {{"id", id_text(snapshot.id())},
          {"conversation", id_text(snapshot.history())},
          {"namespace", id_text(snapshot.name_space())},
          {"kind", kind_text(snapshot.kind())},
          {"position", snapshot.position()},
          {"tiers", std::move(tiers)},
          {"bytes", snapshot.bytes()},
          {"cost_seconds", snapshot.cost_seconds()},
          {"created_ms", snapshot.created_ms()},
          {"used_ms", snapshot.used_ms()}};
}

uint64_t generated_tokens(const v1::ListSnapshotsResponse& listed) {
  uint64_t count = 0;
  for (const v1::TokenRange& range : listed.generated()) count += range.end() - range.begin();
  return count;
}

}  // namespace

std::string id_text(std::string_view id) {
  const auto hash = snapshot::Hash128::from_bytes(id);
  return hash ? hash->text() : "?";
}

Result<std::string> find_id(const v1::ListSnapshotsResponse& listed, std::string_view beginning) {
  const bool digits = beginning.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  if (beginning.empty() || !digits || beginning.size() > kIdDigits) {
    return fail(Code::kInvalidArgument, "{}: expected up to {} digits of 0-9 and a-f, as in the list",
                beginning, kIdDigits);
  }
  if (beginning.size() == kIdDigits) {
    TRY(const auto id, snapshot::Hash128::parse(beginning));
    return id.bytes();
  }
  std::vector<const v1::Snapshot*> found;
  for (const v1::Snapshot& snapshot : listed.snapshots())
    if (id_text(snapshot.id()).starts_with(beginning)) found.push_back(&snapshot);
  if (found.empty()) return fail(Code::kNotFound, "no snapshot's id begins with {}", beginning);
  if (found.size() > 1) {
    return fail(Code::kInvalidArgument, "{} ids begin with {}, such as {} and {}", found.size(), beginning,
                id_text(found[0]->id()), id_text(found[1]->id()));
  }
  return found[0]->id();
}

std::string conversations_text(const v1::ListSnapshotsResponse& listed, int64_t now_ms) {
  std::string out = tiers_text(listed);
  if (listed.snapshots().empty()) return out + "nothing is parked\n";
  const std::size_t digits = digits_shown(listed);
  out += fmt::format("\n{:<{}}  {:<12}  {:<16} {:>8}  {:<11} {:>11} {:>7} {:>7} {:>9}\n", "id", digits,
                     "conversation", "kind", "position", "tiers", "size", "age", "unused", "cost");
  for (const v1::Snapshot& snapshot : listed.snapshots()) {
    out += fmt::format("{:<{}}  {:<12}  {:<16} {:>8}  {:<11} {:>11} {:>7} {:>7} {:>7.2f} s\n",
                       id_text(snapshot.id()).substr(0, digits), digits,
                       id_text(snapshot.history()).substr(0, kShortDigits), kind_text(snapshot.kind()),
                       snapshot.position(), tiers_text(snapshot), bytes_text(snapshot.bytes()),
                       age_text(snapshot.created_ms(), now_ms), age_text(snapshot.used_ms(), now_ms),
                       snapshot.cost_seconds());
  }
  return out;
}

std::string conversations_json(const v1::ListSnapshotsResponse& listed) {
  json::array snapshots;
  for (const v1::Snapshot& snapshot : listed.snapshots()) snapshots.push_back(object_of(snapshot));
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? json::value(nullptr) : json::value(text);
  };
  json::object disk = tier_json(listed.disk());
  disk["folder"] = text_or_null(listed.disk_folder());
  disk["problem"] = text_or_null(listed.disk_problem());
  return json::serialize(json::object{{"memory", tier_json(listed.memory())},
                                      {"disk", std::move(disk)},
                                      {"snapshots", std::move(snapshots)}}) +
         "\n";
}

std::string snapshot_text(const v1::ListSnapshotsResponse& listed, int64_t now_ms) {
  const v1::Snapshot& snapshot = listed.snapshots(0);
  std::string out = fmt::format(
      "id            {}\n"
      "conversation  {}\n"
      "namespace     {}\n"
      "kind          {}\n"
      "position      {} tokens, {} of them generated\n"
      "tiers         {}\n"
      "size          {} that dropping it frees\n"
      "cost          {:.2f} s to read the tokens anew\n"
      "age           {}, unused for {}\n",
      id_text(snapshot.id()), id_text(snapshot.history()), id_text(snapshot.name_space()),
      kind_text(snapshot.kind()), snapshot.position(), generated_tokens(listed), tiers_text(snapshot),
      bytes_text(snapshot.bytes()), snapshot.cost_seconds(), age_text(snapshot.created_ms(), now_ms),
      age_text(snapshot.used_ms(), now_ms));
  return out;
}

std::string snapshot_json(const v1::ListSnapshotsResponse& listed) {
  json::object out = object_of(listed.snapshots(0));
  out["tokens"] = json::array(listed.tokens().begin(), listed.tokens().end());
  json::array generated;
  for (const v1::TokenRange& range : listed.generated())
    generated.push_back(json::array{range.begin(), range.end()});
  out["generated"] = std::move(generated);
  return json::serialize(out) + "\n";
}

std::string snapshot_json(const v1::Snapshot& snapshot) {
  return json::serialize(object_of(snapshot)) + "\n";
}

}  // namespace strata::cli
