#include "services/simulation/trace_folder.h"

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include "services/residency/trace_profile.h"

namespace strata::simulation {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

std::string read_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

bool is_trace(const fs::path& path) {
  char magic[8] = {};
  std::ifstream(path, std::ios::binary).read(magic, sizeof magic);
  return std::string_view(magic, sizeof magic) == "STRTRC01";
}

Result<std::vector<fs::path>> trace_files(const std::string& path) {
  std::error_code error;
  if (fs::is_regular_file(path, error)) return std::vector<fs::path>{path};
  std::vector<fs::path> files;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().extension() == ".bin" && is_trace(entry->path())) files.push_back(entry->path());
  }
  if (error) return fail(Code::kNotFound, "{}: cannot be read: {}", path, error.message());
  if (files.empty()) return fail(Code::kNotFound, "{}: holds no recorded routing (*.bin)", path);
  std::ranges::sort(files);
  return files;
}

// "0-7 are the trunk's; ...": 8.
std::optional<uint32_t> trunk_layers(const json::value& about) {
  const json::value* layers = about.is_object() ? about.as_object().if_contains("layers") : nullptr;
  if (layers == nullptr || !layers->is_string()) return std::nullopt;
  const std::string_view text = layers->as_string();
  if (!text.starts_with("0-")) return std::nullopt;
  uint32_t last = 0;
  const auto [end, error] = std::from_chars(text.data() + 2, text.data() + text.size(), last);
  const bool trunk = error == std::errc() &&
                     text.substr(static_cast<std::size_t>(end - text.data())).starts_with(" are the trunk's");
  return trunk ? std::optional(last + 1) : std::nullopt;
}

std::string name_of(const json::value& about, std::size_t index, const std::string& otherwise) {
  boost::system::error_code error;
  const json::value* name = about.find_pointer(fmt::format("/conversations/{}/name", index), error);
  return !error && name != nullptr && name->is_string() ? std::string(name->as_string()) : otherwise;
}

Result<NamedTrace> read_one(const fs::path& path, uint32_t layers) {
  NamedTrace named;
  TRY(named.trace, residency::read_routing_trace(path.string()));
  json::value about;
  const fs::path beside = fs::path(path).replace_extension(".json");
  std::error_code absent;
  if (fs::exists(beside, absent)) {
    boost::system::error_code error;
    about = json::parse(read_text(beside), error);
    if (error) return fail(Code::kDataLoss, "{}: is no JSON: {}", beside.string(), error.message());
  }
  for (std::size_t i = 0; i < named.trace.conversations.size(); ++i)
    named.names.push_back(name_of(about, i, fmt::format("{}/{}", path.stem().string(), i)));
  const uint32_t wanted = layers > 0 ? layers : trunk_layers(about).value_or(named.trace.layers);
  if (wanted > named.trace.layers) {
    return fail(Code::kInvalidArgument, "{}: has {} layers, {} are wanted", path.string(), named.trace.layers,
                wanted);
  }
  if (wanted < named.trace.layers) named.trace = residency::first_layers(named.trace, wanted);
  return named;
}

}  // namespace

Result<NamedTrace> read_trace_folder(const std::string& path, uint32_t layers) {
  TRY(const std::vector<fs::path> files, trace_files(path));
  TRY(NamedTrace all, read_one(files.front(), layers));
  for (std::size_t i = 1; i < files.size(); ++i) {
    TRY(NamedTrace more, read_one(files[i], layers));
    if (more.trace.layers != all.trace.layers || more.trace.experts != all.trace.experts ||
        more.trace.used != all.trace.used) {
      return fail(Code::kInvalidArgument, "{}: {} layers of {} experts, {} used; {} has {} of {}, {} used",
                  files[i].string(), more.trace.layers, more.trace.experts, more.trace.used,
                  files.front().string(), all.trace.layers, all.trace.experts, all.trace.used);
    }
    std::ranges::move(more.trace.conversations, std::back_inserter(all.trace.conversations));
    std::ranges::move(more.names, std::back_inserter(all.names));
  }
  return all;
}

}  // namespace strata::simulation
