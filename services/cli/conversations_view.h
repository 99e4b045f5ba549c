#pragma once
// Parked conversations as text for people and JSON for programs, and how an id is found by its beginning.

#include <cstdint>
#include <string>
#include <string_view>

#include "services/base/status.h"
#include "strata/v1/snapshots.pb.h"

namespace strata::cli {

// 16 bytes as 32 lower-case hexadecimal digits; "?" for another number of bytes.
std::string id_text(std::string_view id);

// The id (16 bytes) that begins with these digits; all 32 of them need not be listed: the cache manager knows
// why a snapshot is gone. kInvalidArgument: no digits, too many, or several ids begin so; kNotFound.
Result<std::string> find_id(const v1::ListSnapshotsResponse& listed, std::string_view beginning);

// now_ms: Unix time, for ages.
std::string conversations_text(const v1::ListSnapshotsResponse& listed, int64_t now_ms);
std::string conversations_json(const v1::ListSnapshotsResponse& listed);
// Of a list of one, with its tokens.
std::string snapshot_text(const v1::ListSnapshotsResponse& listed, int64_t now_ms);
std::string snapshot_json(const v1::ListSnapshotsResponse& listed);
// What an import gave.
std::string snapshot_json(const v1::Snapshot& snapshot);

}  // namespace strata::cli
