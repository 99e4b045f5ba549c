#pragma once
// A folder of its own for every test of files, and snapshots whose bytes follow from their tokens.

#include <unistd.h>

#include <deque>
#include <filesystem>
#include <fstream>

#include "services/snapshot/disk_tier.h"
#include "services/snapshot/store_fixture.h"

namespace strata::snapshot {

inline std::vector<std::byte> file_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}
inline void write_bytes(const std::string& path, std::span<const std::byte> bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<long>(bytes.size()));
}

// Without waiting for the disk: what a dead process has written is there all the same.
struct FastFiles : DiskFiles {
  Status sync(int, const std::string&) override { return {}; }
  Status sync_folder(const std::string&) override { return {}; }
};

class DiskFixture : public StoreFixture {
 protected:
  DiskFixture() {
    std::string name = testing::TempDir() + "strata-snapshots-XXXXXX";
    CHECK(::mkdtemp(name.data()) != nullptr);
    parent_ = name;
    folder_ = parent_ + "/disk";
  }
  ~DiskFixture() override {
    tier_.reset();
    std::filesystem::remove_all(parent_);
  }

  DiskTierOptions disk_options() {
    DiskTierOptions made;
    made.folder = folder_;
    made.owner = "test";
    made.identity = test_identity();
    made.budget_bytes = uint64_t{1} << 30;
    made.new_seed = {std::byte{7}};
    made.now_ms = [this] { return now_ms_; };
    made.free_bytes = [this] { return free_bytes_; };
    made.files = std::make_shared<FastFiles>();
    return made;
  }
  DiskTier& open_tier() { return open_tier(disk_options()); }
  DiskTier& open_tier(DiskTierOptions wanted) {
    tier_.reset();
    auto opened = DiskTier::open(std::move(wanted));
    CHECK(opened.has_value(), "{}", opened.error().message());
    tier_ = std::move(*opened);
    return *tier_;
  }
  std::string identity_folder() const { return folder_ + "/" + digest(test_identity()).text(); }

  // The bytes live as long as the fixture.
  SnapshotContent content(const TestTokens& tokens, SnapshotKind kind = SnapshotKind::kTurn) {
    const StateIdentity identity = test_identity();
    const StoreSeed seed{std::byte{7}};
    SnapshotContent made;
    Manifest& manifest = made.manifest;
    manifest.name_space = test_namespace();
    manifest.kind = kind;
    manifest.cost_seconds = 0.01 * static_cast<double>(tokens.size());
    manifest.created_ms = manifest.last_used_ms = now_ms_;
    manifest.seed = seed;
    manifest.words = pack_tokens(tokens, {}).value();
    const StateKeys keys =
        KeyMaker(seed, digest(identity), kTestPageTokens).keys(manifest.name_space, manifest.words);
    manifest.id = keys.id;
    manifest.page_keys = keys.pages;
    made.fixed = keep(test_fixed(tokens));
    manifest.part_checksums = part_checksums(identity, made.fixed);
    for (uint32_t page = 0; page < keys.pages.size(); ++page) {
      made.pages.push_back(keep(test_page(tokens, page, kTestPageTokens, kTestPageBytes)));
      manifest.page_checksums.push_back(checksum64(made.pages.back()));
    }
    manifest.tail_bytes = test_tail_bytes(tokens.size());
    if (manifest.tail_bytes > 0) {
      made.tail =
          keep(test_page(tokens, static_cast<uint32_t>(keys.pages.size()),
                         static_cast<uint32_t>(tokens.size()) % kTestPageTokens, manifest.tail_bytes));
      manifest.tail_checksum = checksum64(made.tail);
    }
    return made;
  }
  SnapshotId written(const TestTokens& tokens) {
    auto result = tier_->write(content(tokens), {});
    CHECK(result.has_value(), "{}", result.error().message());
    now_ms_ += 1;
    return result->id;
  }
  // Reads everything back and compares. "": as it should be.
  std::string disk_fault(const SnapshotId& id, const TestTokens& tokens) {
    const auto manifest = tier_->manifest(id);
    if (!manifest) return manifest.error().message();
    if (unpack_tokens(manifest->words) != tokens) return "tokens";
    std::vector<std::byte> fixed(kTestFixedBytes), page(kTestPageBytes), tail(manifest->tail_bytes);
    if (const Status status = tier_->read_fixed(id, fixed); !status.ok()) return status.message();
    if (fixed != test_fixed(tokens)) return "fixed part";
    if (!check_parts(test_identity(), fixed, manifest->part_checksums).ok()) return "checksums of parts";
    const auto pages = static_cast<uint32_t>(manifest->page_keys.size());
    for (uint32_t i = 0; i < pages; ++i) {
      if (const Status status = tier_->read_page(id, i, page); !status.ok()) return status.message();
      if (page != test_page(tokens, i, kTestPageTokens, kTestPageBytes)) return fmt::format("page {}", i);
      if (checksum64(page) != manifest->page_checksums[i]) return fmt::format("checksum of page {}", i);
    }
    if (!tail.empty()) {
      if (const Status status = tier_->read_tail(id, tail); !status.ok()) return status.message();
      if (tail !=
          test_page(tokens, pages, static_cast<uint32_t>(tokens.size()) % kTestPageTokens, tail.size()))
        return "tail";
    }
    return "";
  }
  std::vector<std::string> names(const std::string& suffix = "") const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(identity_folder())) {
      const std::string name = entry.path().filename().string();
      if (name.ends_with(suffix)) found.push_back(name);
    }
    std::sort(found.begin(), found.end());
    return found;
  }
  std::string path(const std::string& name) const { return identity_folder() + "/" + name; }
  // Blocks of all files of snapshots as the tier counts them.
  uint64_t blocks() const {
    uint64_t bytes = 0;
    for (const char* suffix : {".fixed", ".tail", ".page", ".snapshot"})
      for (const std::string& name : names(suffix))
        bytes += extent_footprint(std::filesystem::file_size(path(name)));
    return bytes;
  }

  std::string parent_, folder_;
  uint64_t free_bytes_ = uint64_t{1} << 40;
  std::unique_ptr<DiskTier> tier_;

 private:
  std::span<const std::byte> keep(std::vector<std::byte> bytes) {
    return kept_.emplace_back(std::move(bytes));
  }
  std::deque<std::vector<std::byte>> kept_;
};

}  // namespace strata::snapshot
