#include "services/synthetic/model_outline.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "services/sys/process.h"

namespace strata::synthetic {
namespace {

Failure no_file(std::string_view what) {
  return fail(Code::kUnavailable, "the outline of a model: {}: {}", what, std::strerror(errno));
}

}  // namespace

Result<gguf::GgufFile> open_outline(const ModelPlan& plan) {
  gguf::FileBuilder table = plan.metadata;
  for (const TensorPlan& tensor : plan.tensors)
    table.place(tensor.name, tensor.type, tensor.dims, tensor.bytes());
  const std::string head = table.head();
  const sys::FileDescriptor file(::memfd_create("strata-model-outline", MFD_CLOEXEC));
  if (!file.valid()) return no_file("cannot create a file in memory");
  for (std::size_t written = 0; written < head.size();) {
    const ssize_t count = ::write(file.get(), head.data() + written, head.size() - written);
    if (count < 0) return no_file("cannot write its head");
    written += static_cast<std::size_t>(count);
  }
  if (::ftruncate(file.get(), static_cast<off_t>(head.size() + table.data_bytes())) != 0)
    return no_file("cannot grow");
  // The mapping keeps the file when the descriptor is gone.
  return gguf::GgufFile::open(fmt::format("/proc/self/fd/{}", file.get()));
}

}  // namespace strata::synthetic
