#include "executor/nccl/nccl_api.h"

#include <cstring>
#include <sstream>
#include <thread>
#include <utility>

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nccl.h>

namespace xpipe::executor {

namespace {

using ir::ErrorKind;
using std::chrono::steady_clock;

static_assert(std::tuple_size_v<NcclId> == NCCL_UNIQUE_ID_BYTES);

ir::Error failed(const char* call, const std::string& what) {
  return ir::make_error(ErrorKind::Runtime, "nccl", call, what);
}

ir::Status cuda_status(const char* call, cudaError_t error) {
  return error == cudaSuccess ? ir::Status()
                              : ir::Status(failed(call, std::string(cudaGetErrorString(error)) +
                                                            " (" + cudaGetErrorName(error) + ")"));
}

/// The functions that are used, as nccl.h declares them.
struct Functions {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetErrorString) get_error_string = nullptr;
  decltype(&ncclGetLastError) get_last_error = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) init_rank = nullptr;
  decltype(&ncclCommGetAsyncError) get_async_error = nullptr;
  decltype(&ncclCommFinalize) finalize = nullptr;
  decltype(&ncclCommDestroy) destroy = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) receive = nullptr;
};

/// One side of a connection.
struct Connection {
  enum class Stage : std::uint8_t { Joining, FirstTransfer, Ready };

  ncclComm_t communicator = nullptr;
  bool sends = false;
  std::uint32_t gpu = 0;
  Stage stage = Stage::Joining;
  // of the first transfer
  cudaStream_t stream = nullptr;
  void* byte = nullptr;

  Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  ~Connection() {
    if (byte != nullptr) {
      (void)cudaFree(byte);
    }
    if (stream != nullptr) {
      (void)cudaStreamDestroy(stream);
    }
  }
};

Connection& connection_of(NcclConnection connection) {
  return *static_cast<Connection*>(connection.handle);
}

/// Makes a GPU the current one, and the one before it again.
class OnGpu {
 public:
  explicit OnGpu(std::uint32_t gpu) {
    (void)cudaGetDevice(&before_);
    status_ = cuda_status("cudaSetDevice", cudaSetDevice(static_cast<int>(gpu)));
  }

  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;

  ~OnGpu() { (void)cudaSetDevice(before_); }

  [[nodiscard]] const ir::Status& status() const { return status_; }

 private:
  int before_ = 0;
  ir::Status status_;
};

class LoadedNccl final : public NcclApi {
 public:
  LoadedNccl(Functions functions, int version, std::chrono::nanoseconds time_out)
      : nccl_(functions), version_(version), time_out_(time_out) {}

  [[nodiscard]] std::string version() const override {
    return std::to_string(version_ / 10000) + "." + std::to_string(version_ / 100 % 100) + "." +
           std::to_string(version_ % 100);
  }

  [[nodiscard]] ir::Result<std::string> identity(std::uint32_t gpu) override {
    cudaDeviceProp properties{};
    if (ir::Status status = cuda_status(
            "cudaGetDeviceProperties", cudaGetDeviceProperties(&properties, static_cast<int>(gpu)));
        !status.ok()) {
      return status.error();
    }
    static constexpr const char* kDigits = "0123456789abcdef";
    std::string text = std::string(static_cast<const char*>(properties.name)) + " ";
    for (const char byte : properties.uuid.bytes) {
      const auto bits = static_cast<unsigned char>(byte);
      text += kDigits[bits >> 4U];
      text += kDigits[bits & 15U];
    }
    return text;
  }

  [[nodiscard]] ir::Result<NcclId> new_id() override {
    ncclUniqueId made{};
    if (const ncclResult_t result = nccl_.get_unique_id(&made); result != ncclSuccess) {
      return error_of("ncclGetUniqueId", result, nullptr);
    }
    NcclId id{};
    std::memcpy(id.data(), static_cast<const char*>(made.internal), id.size());
    return id;
  }

  [[nodiscard]] ir::Result<NcclConnection> connect(const NcclId& id,
                                                   bool sends,
                                                   std::uint32_t gpu) override {
    const OnGpu on(gpu);
    if (!on.status().ok()) {
      return on.status().error();
    }
    ncclUniqueId unique{};
    std::memcpy(static_cast<char*>(unique.internal), id.data(), id.size());
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    auto connection = std::make_unique<Connection>();
    connection->sends = sends;
    connection->gpu = gpu;
    const ncclResult_t result =
        nccl_.init_rank(&connection->communicator, 2, unique, sends ? 0 : 1, &config);
    if (result != ncclSuccess && result != ncclInProgress) {
      return error_of("ncclCommInitRankConfig", result, nullptr);
    }
    return NcclConnection{connection.release()};
  }

  [[nodiscard]] ir::Result<bool> is_ready(NcclConnection which) override {
    Connection& connection = connection_of(which);
    if (connection.stage == Connection::Stage::Ready) {
      return true;
    }
    const ncclResult_t state = state_of(connection);
    if (state == ncclInProgress) {
      return false;
    }
    if (state != ncclSuccess) {
      return error_of("ncclCommGetAsyncError", state, connection.communicator);
    }
    if (connection.stage == Connection::Stage::Joining) {
      connection.stage = Connection::Stage::FirstTransfer;
      const ir::Status begun = begin_first_transfer(connection);
      return begun.ok() ? ir::Result<bool>(false) : ir::Result<bool>(begun.error());
    }
    const cudaError_t error = cudaStreamQuery(connection.stream);
    if (error == cudaErrorNotReady) {
      return false;
    }
    if (ir::Status status = cuda_status("cudaStreamQuery", error); !status.ok()) {
      return status.error();
    }
    connection.stage = Connection::Stage::Ready;
    return true;
  }

  [[nodiscard]] ir::Status check(NcclConnection which) override {
    const Connection& connection = connection_of(which);
    const ncclResult_t state = state_of(connection);
    return state == ncclSuccess || state == ncclInProgress
               ? ir::Status()
               : ir::Status(error_of("ncclCommGetAsyncError", state, connection.communicator));
  }

  ir::Status send(NcclConnection which,
                  const void* data,
                  std::size_t bytes,
                  GpuStream stream) override {
    const Connection& connection = connection_of(which);
    return settled(connection, "ncclSend",
                   nccl_.send(data, bytes, ncclUint8, 1, connection.communicator,
                              static_cast<cudaStream_t>(stream.handle)));
  }

  ir::Status receive(NcclConnection which,
                     void* data,
                     std::size_t bytes,
                     GpuStream stream) override {
    const Connection& connection = connection_of(which);
    return settled(connection, "ncclRecv",
                   nccl_.receive(data, bytes, ncclUint8, 0, connection.communicator,
                                 static_cast<cudaStream_t>(stream.handle)));
  }

  void destroy(NcclConnection which) override {
    const std::unique_ptr<Connection> connection(&connection_of(which));
    const OnGpu on(connection->gpu);
    const ncclResult_t begun = nccl_.finalize(connection->communicator);
    const bool finalized = (begun == ncclSuccess || begun == ncclInProgress) &&
                           settled(*connection, "ncclCommFinalize", begun, kLongestGoodbye).ok();
    if (finalized) {
      (void)nccl_.destroy(connection->communicator);
    } else {
      (void)nccl_.abort(connection->communicator);
    }
  }

  void abort(NcclConnection which) override {
    const std::unique_ptr<Connection> connection(&connection_of(which));
    const OnGpu on(connection->gpu);
    (void)nccl_.abort(connection->communicator);
  }

 private:
  static constexpr std::chrono::nanoseconds kLongestGoodbye = std::chrono::seconds(2);

  [[nodiscard]] ir::Error error_of(const char* call,
                                   ncclResult_t result,
                                   ncclComm_t communicator) const {
    std::string what = nccl_.get_error_string(result);
    if (const char* last = nccl_.get_last_error(communicator); last != nullptr && *last != '\0') {
      what += ": " + std::string(last);
    }
    return failed(call, what + " (NCCL_DEBUG=WARN says more)");
  }

  [[nodiscard]] ncclResult_t state_of(const Connection& connection) const {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = nccl_.get_async_error(connection.communicator, &state);
    return asked == ncclSuccess ? state : asked;
  }

  /// A communicator that does not block may return before the stream has the work; events that are
  /// recorded next must come after it.
  [[nodiscard]] ir::Status settled(const Connection& connection,
                                   const char* call,
                                   ncclResult_t result,
                                   std::chrono::nanoseconds limit) const {
    const steady_clock::time_point since = steady_clock::now();
    while (result == ncclInProgress) {
      if (steady_clock::now() - since >= limit) {
        std::ostringstream text;
        text << "is not taken by NCCL for " << std::chrono::duration<double>(limit).count() << " s";
        return ir::make_error(ErrorKind::Runtime, "time-out", call, text.str());
      }
      std::this_thread::yield();
      result = state_of(connection);
    }
    return result == ncclSuccess ? ir::Status()
                                 : ir::Status(error_of(call, result, connection.communicator));
  }

  [[nodiscard]] ir::Status settled(const Connection& connection,
                                   const char* call,
                                   ncclResult_t result) const {
    return settled(connection, call, result, time_out_);
  }

  /// NCCL sets up the way between two GPUs with the first thing that goes over it. Does not wait.
  [[nodiscard]] ir::Status begin_first_transfer(Connection& connection) {
    const OnGpu on(connection.gpu);
    if (ir::Status status =
            cuda_status("cudaStreamCreateWithFlags",
                        cudaStreamCreateWithFlags(&connection.stream, cudaStreamNonBlocking));
        !status.ok()) {
      return status;
    }
    if (ir::Status status = cuda_status("cudaMalloc", cudaMalloc(&connection.byte, 1));
        !status.ok()) {
      return status;
    }
    const ncclResult_t result = connection.sends
                                    ? nccl_.send(connection.byte, 1, ncclUint8, 1,
                                                 connection.communicator, connection.stream)
                                    : nccl_.receive(connection.byte, 1, ncclUint8, 0,
                                                    connection.communicator, connection.stream);
    return result == ncclSuccess || result == ncclInProgress
               ? ir::Status()
               : ir::Status(error_of(connection.sends ? "ncclSend" : "ncclRecv", result,
                                     connection.communicator));
  }

  const Functions nccl_;
  const int version_;
  const std::chrono::nanoseconds time_out_;
};

ir::Error no_nccl(const std::string& why) {
  return ir::make_error(ErrorKind::Usage, "no-nccl", "--transport",
                        "nccl: " + why +
                            "; PyTorch's CUDA wheel brings libnccl.so.2 (LD_LIBRARY_PATH), or use "
                            "--transport gloo");
}

}  // namespace

ir::Result<std::unique_ptr<NcclApi>> load_nccl(std::chrono::nanoseconds time_out) {
  // By its name first: that is LibTorch's own where LibTorch's CUDA library is loaded.
  void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    library = dlopen(XPIPE_NCCL_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) {
    const char* why = dlerror();  // NOLINT(concurrency-mt-unsafe): each thread has its own
    return no_nccl(why != nullptr ? why : "libnccl.so.2 cannot be loaded");
  }
  Functions functions;
  std::string missing;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr) {
      missing += (missing.empty() ? "" : ", ") + std::string(name);
    }
  };
  find(functions.get_version, "ncclGetVersion");
  find(functions.get_error_string, "ncclGetErrorString");
  find(functions.get_last_error, "ncclGetLastError");
  find(functions.get_unique_id, "ncclGetUniqueId");
  find(functions.init_rank, "ncclCommInitRankConfig");
  find(functions.get_async_error, "ncclCommGetAsyncError");
  find(functions.finalize, "ncclCommFinalize");
  find(functions.destroy, "ncclCommDestroy");
  find(functions.abort, "ncclCommAbort");
  find(functions.send, "ncclSend");
  find(functions.receive, "ncclRecv");
  if (!missing.empty()) {
    return no_nccl("libnccl.so.2 is too old, it lacks " + missing);
  }
  int version = 0;
  if (functions.get_version(&version) != ncclSuccess ||
      version < NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, 0)) {
    return no_nccl("libnccl.so.2 is version " + std::to_string(version) + ", want at least " +
                   std::to_string(NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, 0)));
  }
  return std::unique_ptr<NcclApi>(std::make_unique<LoadedNccl>(functions, version, time_out));
}

}  // namespace xpipe::executor
