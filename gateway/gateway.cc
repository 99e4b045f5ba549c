#include "gateway/gateway.h"

#include <fmt/format.h>

#include <filesystem>
#include <future>
#include <mutex>

#include "gateway/engine/engine_monitor.h"
#include "gateway/engine/grpc_engine.h"
#include "gateway/index/grpc_state_feeds.h"
#include "gateway/metrics/grpc_processes.h"
#include "gateway/metrics/metrics_gatherer.h"
#include "gateway/service/service.h"
#include "services/actor/actor_system.h"
#include "services/base/build_info.h"
#include "services/base/limits.h"
#include "services/expert/thread_plan.h"
#include "services/gguf/gguf_file.h"
#include "services/model/model_config.h"
#include "services/obs/log.h"
#include "services/sys/file_limit.h"

namespace strata::gateway {

namespace {

using std::chrono::milliseconds;

// Beside the HTTP thread: two read and tokenize requests, one may wait for the file of stored responses, and
// one is always left for searches.
constexpr uint32_t kWorkerThreads = 4;
constexpr uint64_t kResponseBytesDefault = uint64_t{1} << 30;
constexpr int64_t kSecondsOfDay = 24 * 60 * 60;
// Bodies that may be parsed at the same time, beyond the requests that run or wait.
constexpr uint32_t kRequestsBeingRead = 8;
// Open files beside the connections: the links to the other processes, the model, the responses, threads.
constexpr uint64_t kOtherFiles = 128;
// After the last answer, for what is still in buffers.
constexpr milliseconds kFlushGrace{500};

int64_t unix_time() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// Errors: the file's.
Result<std::vector<config::SecretHash>> load_keys(const config::Settings& settings) {
  std::vector<config::SecretHash> keys = settings.gateway_api_keys().list;
  if (settings.gateway_api_keys_file().empty()) return keys;
  TRY(auto more, read_key_file(settings.gateway_api_keys_file().string()));
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

// nullptr: plain http.
Result<std::shared_ptr<TlsCertificate>> load_tls(const config::Settings& settings) {
  const std::string& certificate = settings.gateway_tls_certificate().string();
  const std::string& key = settings.gateway_tls_key().string();
  if (certificate.empty() && key.empty()) return nullptr;
  TRY(auto tls, TlsCertificate::load(certificate, key));
  const auto now = std::chrono::system_clock::now();
  // Not refused: the clock may be what is wrong, and whoever pins a certificate does not mind.
  if (now < tls->valid_from() || now >= tls->valid_until())
    obs::warn("gateway", "gateway.tls_certificate: {}: is not valid today; clients will refuse it",
              certificate);
  return tls;
}

struct LoadedModel {
  ModelCard card;
  std::shared_ptr<const Preparer> preparer;
};

Result<LoadedModel> load_model(const config::Settings& settings) {
  TRY(auto file, gguf::GgufFile::open(settings.model_path().string()));
  TRY(auto tokenizer, tokenizer::Tokenizer::from_gguf(file));
  TRY(auto source, file.get_string("tokenizer.chat_template"));
  TRY(auto prompts,
      ChatPrompts::parse(source, settings.thinking_template_variable(), settings.thinking_default().value));
  TRY(auto sampling, model::read_sampling_defaults(file));
  TRY(auto config, model::read_model_config(file));
  ModelCard card;
  card.id = settings.model_name();
  if (card.id.empty()) card.id = config.name;
  if (card.id.empty()) card.id = std::filesystem::path(file.path()).stem().string();
  card.file_name = std::filesystem::path(file.path()).filename().string();
  card.chat_template = source;
  card.created = unix_time();
  card.context_tokens =
      settings.engine_context_tokens() != 0 ? settings.engine_context_tokens() : config.context_length;
  card.sequences = settings.engine_sequences();
  card.system_fingerprint =
      system_fingerprint(file.fingerprint(), settings.numerics().value, settings.device_type().value);
  card.fallbacks = sampling_fallbacks(sampling, settings);
  card.thinking_variable = settings.thinking_template_variable();
  card.thinking_default = settings.thinking_default().value;
  card.thinking_budgets = thinking_budgets(settings);
  TRY(auto grammars, AnswerGrammars::create(tokenizer, prompts.call_format()));
  auto preparer =
      std::make_shared<const Preparer>(std::move(tokenizer), std::move(prompts), std::move(grammars), card);
  return LoadedModel{.card = std::move(card), .preparer = std::move(preparer)};
}

ReuseOptions reuse_options(const config::Settings& settings) {
  return {.checkpoints = {.every_tokens = settings.conversations_checkpoint_every_tokens(),
                          .positions_max = settings.conversations_checkpoints_max()},
          .share_roots = settings.conversations_share_roots().value == "on"};
}

ResponseKeeper::Options keeper_options(const config::Settings& settings, const std::string& run_dir) {
  const std::string file = settings.responses_file().string();
  return {.path = file.empty() ? run_dir + "/responses.sqlite" : file,
          .limits = {.bytes_max = settings.responses_bytes_max().bytes.value_or(kResponseBytesDefault),
                     .unused_s_max = settings.responses_unused_days_max() * kSecondsOfDay},
          .unix_time = unix_time};
}

uint32_t connections_max(const config::Settings& settings) {
  const uint32_t wanted = settings.gateway_connections_max();
  const uint64_t files = sys::raise_file_limit();
  const uint64_t room = files > 2 * kOtherFiles ? files - kOtherFiles : files / 2;
  if (wanted <= room) return wanted;
  obs::warn("gateway",
            "gateway.connections_max is {}, but this process may open {} files: {} connections at most. "
            "LimitNOFILE= of a unit and ulimits of a container raise the limit",
            wanted, files, room);
  return static_cast<uint32_t>(room);
}

// What never changes while the process runs.
void set_build_metrics(obs::Metrics& metrics, const std::string& config_hash) {
  metrics
      .gauge("strata_build_info", "1; what was built.",
             {{"version", std::string(version())}, {"commit", std::string(commit())}})
      .Set(1);
  metrics
      .gauge("strata_config_info", "1; hash of the settings that this cluster runs with.",
             {{"sha", config_hash}})
      .Set(1);
  metrics.gauge("strata_start_time_seconds", "When the gateway started, Unix time.")
      .Set(std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count());
}

}  // namespace

struct Gateway::Impl {
  GatewayOptions options;
  LoadedModel model;
  std::vector<config::SecretHash> keys;
  std::shared_ptr<obs::Metrics> metrics = std::make_shared<obs::Metrics>(obs::Labels{});
  std::unique_ptr<GatewayProbe> probe = std::make_unique<GatewayProbe>(*metrics);
  std::unique_ptr<ConversationProbe> conversations = std::make_unique<ConversationProbe>(*metrics);
  std::unique_ptr<RequestLog> request_log;  // nullptr: none is kept
  std::unique_ptr<HttpServer> http;
  std::unique_ptr<actor::ActorSystem> workers = std::make_unique<actor::ActorSystem>(kWorkerThreads);
  std::unique_ptr<EngineClient> engine;
  std::unique_ptr<ProcessClient> processes;
  std::unique_ptr<StateFeed> engine_feed, store_feed;
  std::shared_ptr<ConversationIndex> index;
  std::shared_ptr<ResponseKeeper> keeper;  // nullptr: responses are not stored
  std::shared_ptr<Admission> admission;
  std::shared_ptr<EngineMonitor> monitor;
  std::shared_ptr<Service> service;
  std::shared_ptr<MetricsGatherer> gatherer;
  std::string address;

  mutable std::mutex status_mutex;
  GatewayStatus known_status;  // guarded by status_mutex
  EngineState engine_state;    // HTTP thread
  AdmissionView queue;         // HTTP thread

  Status open_request_log() {
    const config::Settings& settings = *options.settings;
    if (settings.gateway_request_log().empty()) return {};
    RequestLogOptions log{.path = settings.gateway_request_log().string(),
                          .content = settings.gateway_request_log_content().value == "on"};
    log.bytes_max = settings.gateway_request_log_bytes_max().bytes.value_or(log.bytes_max);
    auto& dropped = metrics->counter("strata_request_log_dropped_total",
                                     "Requests that are not in the request log: the disk is slow or full.");
    auto opened = RequestLog::open(std::move(log), dropped);
    if (!opened) return fail(opened.error().code(), "gateway.request_log: {}", opened.error().message());
    request_log = std::move(*opened);
    return {};
  }

  Status open_responses() {
    const config::Settings& settings = *options.settings;
    if (settings.responses_store().value == "off") return {};
    TRY(keeper,
        ResponseKeeper::start(workers->make_executor(), keeper_options(settings, options.run_dir), *metrics));
    return {};
  }

  void wire() {
    const config::Settings& settings = *options.settings;
    engine = make_grpc_engine(options.run_dir);
    auto cluster = cluster_processes(expert::worker_count(settings));
    processes = make_grpc_processes(options.run_dir, cluster);

    engine_feed = make_engine_feed(options.run_dir);
    store_feed = make_store_feed(options.run_dir);
    index = std::make_shared<ConversationIndex>(
        workers->make_executor(),
        PrefixIndexOptions{.reuse_tokens_min = settings.conversations_reuse_tokens_min()},
        ConversationIndex::Feeds{engine_feed.get(), store_feed.get()}, *conversations, *probe);

    auto executor = http->executor();
    admission = std::make_shared<Admission>(
        executor,
        AdmissionOptions{.sequences = settings.engine_sequences(),
                         .queue_limit = settings.gateway_queue_limit(),
                         // Without keys all would be one key's.
                         .requests_per_key = keys.empty() ? 0 : settings.gateway_requests_per_key()},
        [this](const AdmissionView& view) {
          queue = view;
          update_status();
          tell(service, view);
        },
        [this] { tell(monitor, EngineMonitor::Lost{}); });
    GenerationEnvironment environment{.tokenizer = &model.preparer->tokenizer(),
                                      .engine = engine.get(),
                                      .probe = probe.get(),
                                      .conversations = conversations.get(),
                                      .admission = admission,
                                      .index = index,
                                      .request_log = request_log.get(),
                                      .keeper = keeper,
                                      .limits = options.generation,
                                      .reuse = reuse_options(settings)};
    service = std::make_shared<Service>(
        executor,
        ServiceOptions{.listen_host = parse_listen(settings.gateway_listen()).value_or(ListenAddress{}).host,
                       .api_keys = keys,
                       .cors_origins = settings.gateway_cors_origins().list,
                       .https = options.http.tls != nullptr,
                       .drain = milliseconds(settings.supervisor_drain_ms()),
                       .requests_max = kSequencesMax + settings.gateway_queue_limit() + kRequestsBeingRead},
        model.preparer, model.card, environment, *metrics,
        std::vector<std::shared_ptr<actor::Executor>>{workers->make_executor(), workers->make_executor()});
    monitor =
        std::make_shared<EngineMonitor>(executor, *engine,
                                        std::vector<std::function<void(const EngineState&)>>{
                                            [this](const EngineState& state) { tell(admission, state); },
                                            [this](const EngineState& state) { tell(service, state); },
                                            [this](const EngineState& state) { tell(index, state); },
                                            [this](const EngineState& state) { engine_seen(state); }});
    gatherer =
        std::make_shared<MetricsGatherer>(workers->make_executor(), std::move(cluster), *processes, *metrics,
                                          [this](auto merged) { tell(service, std::move(merged)); });
    if (options.http.tls != nullptr) {
      metrics
          ->gauge("strata_tls_certificate_expires_seconds",
                  "When the certificate that is used ends, Unix time; a renewed one needs a restart.")
          .Set(std::chrono::duration<double>(options.http.tls->valid_until().time_since_epoch()).count());
    }
    probe->queue_limit.Set(settings.gateway_queue_limit());
    set_build_metrics(*metrics, options.config_hash);
  }

  void engine_seen(const EngineState& state) {
    engine_state = state;
    update_status();
  }

  void update_status() {
    const bool ready = engine_state.phase == EngineState::Phase::kReady;
    std::scoped_lock lock(status_mutex);
    known_status.was_ready |= ready;
    known_status.progress = engine_state.progress;
    known_status.degraded = engine_state.info.degraded;
    if (!ready) known_status.degraded = {"gpu-worker"};
    known_status.facts = {{"address", address},
                          {"model", model.card.id},
                          {"requests", fmt::format("{} running, {} waiting", queue.running, queue.waiting)},
                          {"system fingerprint", model.card.system_fingerprint}};
  }
};

Gateway::Gateway(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<Gateway>> Gateway::start(GatewayOptions options) {
  const config::Settings& settings = *options.settings;
  options.http.connections_max = connections_max(settings);
  options.http.body_bytes_max = settings.gateway_body_bytes_max();
  options.http.request_timeout = milliseconds(settings.gateway_request_timeout_ms());
  options.http.idle_timeout = milliseconds(settings.gateway_idle_timeout_ms());
  options.generation.keepalive = milliseconds(settings.gateway_keepalive_ms());
  auto impl = std::make_unique<Impl>();
  TRY(impl->keys, load_keys(settings));
  TRY(options.http.tls, load_tls(settings));
  TRY(impl->model, load_model(settings));
  impl->options = std::move(options);
  impl->http = std::make_unique<HttpServer>(impl->options.http, *impl->probe);
  TRY_OK(impl->open_request_log());
  TRY_OK(impl->open_responses());
  impl->wire();
  TRY(impl->address,
      impl->http->listen(
          settings.gateway_listen(),
          {.screen = [service = impl->service](Exchange& exchange) { return service->screen(exchange); },
           .serve = [service = impl->service](
                        std::shared_ptr<Exchange> exchange) { service->serve(std::move(exchange)); }}));
  impl->service->set_address(impl->address);
  impl->update_status();
  tell(impl->index, ConversationIndex::Start{});
  tell(impl->monitor, EngineMonitor::Start{});
  tell(impl->gatherer, MetricsGatherer::Round{});
  if (impl->keys.empty() &&
      !is_loopback(parse_listen(settings.gateway_listen()).value_or(ListenAddress{}).host)) {
    obs::warn("gateway", "{} answers whoever can reach it: gateway.api_keys is empty", impl->address);
  }
  const SamplingFallbacks& sampling = impl->model.card.fallbacks;
  obs::info("gateway",
            "{} serves {}; sampling unless a request says otherwise: temperature={} ({}) top_p={} ({}) "
            "top_k={} ({}) "
            "min_p={} ({})",
            impl->address, impl->model.card.id, sampling.temperature.value, sampling.temperature.source,
            sampling.top_p.value, sampling.top_p.source, sampling.top_k.value, sampling.top_k.source,
            sampling.min_p.value, sampling.min_p.source);
  return std::unique_ptr<Gateway>(new Gateway(std::move(impl)));
}

// First the threads, then whoever may hold a call of the links, in the actors as in what was still to be
// done; the links at the end, for they wait until nobody holds a call any more.
Gateway::~Gateway() {
  impl_->http->stop(milliseconds(0));
  impl_->workers->stop();
  impl_->gatherer.reset();
  impl_->monitor.reset();
  impl_->service.reset();
  impl_->admission.reset();
  impl_->index.reset();
  impl_->keeper.reset();
  impl_->http.reset();
  impl_->workers.reset();
  impl_->engine_feed.reset();
  impl_->store_feed.reset();
  impl_->engine.reset();
  impl_->processes.reset();
}

const std::string& Gateway::address() const { return impl_->address; }

const std::shared_ptr<obs::Metrics>& Gateway::metrics() const { return impl_->metrics; }

GatewayStatus Gateway::status() const {
  std::scoped_lock lock(impl_->status_mutex);
  return impl_->known_status;
}

void Gateway::drain_and_stop() {
  {
    std::scoped_lock lock(impl_->status_mutex);
    impl_->known_status.draining = true;
  }
  auto drained = std::make_shared<std::promise<void>>();
  auto over = drained->get_future();
  Service::Drain drain{.done = [drained] { drained->set_value(); }};
  tell(impl_->service, std::move(drain));
  over.wait_for(milliseconds(impl_->options.settings->supervisor_drain_ms()) + kFlushGrace);
  impl_->http->stop(kFlushGrace);
}

}  // namespace strata::gateway
