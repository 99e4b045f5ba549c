#pragma once
// Every setting of a deployment, declared once: name, sentence, unit, default, bounds, live or restart,
// example. The YAML loader, `strata config show`, the reference page and the bounds test come from here.
// Usage: settings.experts_slots().

#include "services/base/limits.h"
#include "services/config/property.h"

namespace strata::config {

struct Settings : PropertySet {
  // --- model
  Property<Path> model_path{this,
                            "model.path",
                            "The GGUF file, or the first shard of several.",
                            {.applies = Applies::kRestartAll, .example = "models/strata-demo.gguf"},
                            Path()};
  Property<std::string> model_name{this,
                                   "model.name",
                                   "The id that /v1/models shows; empty: general.name of the file.",
                                   {.applies = Applies::kRestartAll, .example = "demo"},
                                   ""};

  // --- device
  Property<Choice> device_type{this,
                               "device.type",
                               "What the gpu-worker computes on.",
                               {.applies = Applies::kRestartAll, .example = "host"},
                               Choice{"host"},
                               {.choices = {"host", "cuda"}}};
  Property<uint32_t> device_threads{
      this,
      "device.threads",
      "Threads of the host device; 0: all CPUs, shared with the expert workers.",
      {.unit = Unit::kThreads, .applies = Applies::kRestartAll, .example = "4"},
      0,
      {.min = 0, .max = kExpertThreadsMax}};
  Property<Size> device_vram_budget{
      this,
      "device.vram_budget",
      "Device memory that the cuda device may use; auto: what is free at start, less device.vram_reserve. "
      "A smaller budget acts like a smaller card.",
      {.unit = Unit::kBytes, .applies = Applies::kRestartGpuWorker, .example = "12GiB"},
      Size::automatic()};
  Property<Size> device_vram_reserve{
      this,
      "device.vram_reserve",
      "Device memory that stays free for others (a desktop, say); auto: a sixteenth of the card, at most "
      "1GiB.",
      {.unit = Unit::kBytes, .applies = Applies::kRestartGpuWorker, .example = "512MiB"},
      Size::automatic()};
  Property<Choice> device_kv{this,
                             "device.kv",
                             "How the cuda device keeps keys and values. The host device has float32 always.",
                             {.applies = Applies::kRestartGpuWorker, .example = "float16"},
                             Choice{"float16"},
                             {.choices = {"float32", "float16", "int8"}}};
  Property<Choice> numerics{
      this,
      "numerics",
      "reproducible: the same bits on every device, however a prompt is cut. exact: float32 "
      "products, for judging (host device). fast: as reproducible, but the cuda device "
      "reads prompts with kernels whose sums have the GPU's own order and rounding "
      "(sm_80 and later).",
      {.applies = Applies::kRestartAll, .example = "reproducible"},
      Choice{"reproducible"},
      {.choices = {"reproducible", "exact", "fast"}}};

  // --- engine
  Property<uint32_t> engine_sequences{
      this,
      "engine.sequences",
      "Conversations that run at the same time.",
      {.unit = Unit::kCount, .applies = Applies::kRestartGpuWorker, .example = "4"},
      4,
      {.min = 1, .max = kSequencesMax}};
  Property<Count> engine_checkpoints{
      this,
      "engine.checkpoints",
      "States of conversations that the device keeps beside the running ones, to go on from when a message "
      "is "
      "edited or another conversation begins alike; auto: as many as a sixty-fourth of the memory holds, 2 "
      "to "
      "32.",
      {.unit = Unit::kCount, .applies = Applies::kRestartGpuWorker, .example = "8"},
      Count::automatic(),
      {.min = Count(2), .max = Count(kCheckpointsMax)}};
  Property<uint32_t> engine_context_tokens{
      this,
      "engine.context_tokens",
      "Tokens that one conversation may hold; 0: what the model's file says.",
      {.unit = Unit::kTokens, .applies = Applies::kRestartGpuWorker, .example = "8192"},
      0,
      {.min = 0, .max = 1048576}};
  Property<Count> engine_prefill_chunk_tokens{
      this,
      "engine.prefill_chunk_tokens",
      "Prompt tokens read in one window; longer prompts take several, between which "
      "running answers go on. auto: 128 on the host device; on the cuda device the largest chunk whose "
      "buffers take at most a sixth of the memory left.",
      {.unit = Unit::kTokens, .applies = Applies::kRestartGpuWorker, .example = "128"},
      Count::automatic(),
      {.min = Count(1), .max = Count(kPrefillChunkTokensMax)}};
  Property<uint32_t> engine_window_budget_ms{
      this,
      "engine.window_budget_ms",
      "The watchdog ends a window that takes longer than this.",
      {.unit = Unit::kMilliseconds, .applies = Applies::kRestartGpuWorker, .example = "60000"},
      60000,
      {.min = 1000, .max = 3600000}};

  Property<std::string> engine_synthetic_routing{
      this,
      "engine.synthetic_routing",
      "For measuring speed only: experts are not chosen by the router but drawn (mild, strong, uniform or "
      "skew=A/B/C: the shares of the hottest 1/8, 1/4, 1/2; drift=SHARE of the hot half exchanged per 64 "
      "tokens; seed=N) or replayed (trace:FILE); answers are meaningless then. Empty: off.",
      {.applies = Applies::kRestartGpuWorker, .example = "mild,drift=0.01,seed=7"},
      ""};

  // --- experts
  Property<Amount> experts_slots{
      this,
      "experts.slots",
      "Arena slots over all trunk layers: a number, a percentage of all experts, or auto.",
      {.unit = Unit::kExperts, .applies = Applies::kRestartGpuWorker, .example = "25%"},
      Amount::automatic()};
  Property<uint32_t> experts_stream_tokens_min{
      this,
      "experts.stream_tokens_min",
      "Windows of at least so many tokens copy experts that are not resident to the device, up to 512 tokens "
      "as many "
      "as are there when the expert workers have computed the others; in smaller ones the workers compute "
      "all of "
      "them. For the cuda device.",
      {.unit = Unit::kTokens, .applies = Applies::kRestartGpuWorker, .example = "128"},
      128,
      {.min = 1, .max = kPrefillChunkTokensMax}};
  Property<Choice> experts_policy{this,
                                  "experts.policy",
                                  "What decides which experts are resident: topic (recent use, and what the "
                                  "topic of the conversation is known to need), lfu-decay (recent use), lfu "
                                  "(use since the start), lru (last use), static (the profile alone).",
                                  {.applies = Applies::kLive, .example = "topic"},
                                  Choice{"topic"},
                                  {.choices = {"topic", "lfu-decay", "lfu", "lru", "static"}}};
  Property<Path> experts_profile{
      this,
      "experts.profile",
      "Routing profile that fills the arena at start; empty: none.",
      {.applies = Applies::kRestartCacheManager, .example = "models/strata-demo.profile"},
      Path()};
  Property<Amount> experts_exchanges_per_window{
      this,
      "experts.exchanges_per_window",
      "Exchanges that may begin per window: a number, or a percentage of the layers; auto: 50%, which is one "
      "per two layers. Filling free slots and pinned experts wait for nothing.",
      {.applies = Applies::kLive, .example = "25%"},
      Amount::automatic()};
  Property<Size> experts_copy_budget{
      this,
      "experts.copy_budget",
      "Bytes per second that exchanges may copy into the arena; auto: no bound. Copies take memory bandwidth "
      "from the expert workers: where experts are large and uses hardly change, more costs more than it "
      "brings.",
      {.unit = Unit::kBytes, .applies = Applies::kLive, .example = "2GiB"},
      Size::of(256 << 20)};
  Property<Count> experts_exchanges_in_flight{
      this,
      "experts.exchanges_in_flight",
      "Experts between retirement and landing at the same time; 0: residency stays as it is; auto: what "
      "three "
      "windows may begin, at least 4.",
      {.unit = Unit::kExperts, .applies = Applies::kLive, .example = "4"},
      Count::automatic(),
      {.min = Count(0), .max = Count(kExchangesInFlightMax)}};
  Property<uint32_t> experts_exchange_interval_ms{
      this,
      "experts.exchange_interval_ms",
      "Least pause between two looks at the usage; 0: a look after each window. Small models' windows take "
      "less, and a look at each "
      "would cost them more than it brings.",
      {.unit = Unit::kMilliseconds, .applies = Applies::kRestartCacheManager, .example = "50"},
      5,
      {.min = 0, .max = 60000}};
  Property<Choice> experts_verify_records{
      this,
      "experts.verify_records",
      "Check by checksums that a slot holds its expert when it lands and before each use (host device): for "
      "finding faults; costs a third of the speed and more. auto: in debug builds.",
      {.applies = Applies::kRestartAll, .example = "on"},
      Choice{"auto"},
      {.choices = {"auto", "on", "off"}}};
  Property<double> experts_decay_tokens{
      this,
      "experts.decay_tokens",
      "Generated tokens after which a use counts half; for policies topic (its long memory) and lfu-decay.",
      {.unit = Unit::kTokens, .applies = Applies::kRestartCacheManager, .example = "32"},
      32.0,
      {.min = 1.0, .max = 1e9}};

  // --- cpu_experts
  Property<Count> cpu_experts_workers{
      this,
      "cpu_experts.workers",
      "Expert worker processes; auto: one per NUMA node, each with its node's cores and memory.",
      {.unit = Unit::kCount, .applies = Applies::kRestartAll, .example = "auto"},
      Count::automatic(),
      {.min = Count(0), .max = Count(kExpertWorkersMax)}};
  Property<uint32_t> cpu_experts_threads{
      this,
      "cpu_experts.threads",
      "Threads of each expert worker; 0: one per fast physical core (half of them beside the host device), "
      "within the CPU quota, less one core for the gateway and the window loop, and another one for every 16 "
      "where cores have no siblings.",
      {.unit = Unit::kThreads, .applies = Applies::kRestartAll, .example = "8"},
      0,
      {.min = 0, .max = kExpertThreadsMax}};
  Property<Choice> cpu_experts_pin{this,
                                   "cpu_experts.pin",
                                   "Pin expert threads and the window loop to cores; auto: unless cores are "
                                   "short. Two clusters on one machine would pin the same ones: off, or "
                                   "give each its own CPUs (taskset).",
                                   {.applies = Applies::kRestartAll, .example = "auto"},
                                   Choice{"auto"},
                                   {.choices = {"auto", "on", "off"}}};
  Property<Count> cpu_experts_park_after_us{
      this,
      "cpu_experts.park_after_us",
      "Quiet time after which expert threads sleep (where cores are not short, not while a window runs); 0: "
      "never; auto: 2000, more where waking a thread takes long.",
      {.unit = Unit::kMicroseconds, .applies = Applies::kRestartAll, .example = "auto"},
      Count::automatic(),
      {.min = Count(0), .max = Count(10000000)}};
  Property<uint32_t> cpu_experts_lost_after_ms{
      this,
      "cpu_experts.lost_after_ms",
      "A worker whose progress stands still for so long is killed and replaced.",
      {.unit = Unit::kMilliseconds, .applies = Applies::kRestartGpuWorker, .example = "1000"},
      1000,
      {.min = 10, .max = 600000}};

  // --- conversations
  Property<Size> conversations_ram_budget{
      this,
      "conversations.ram_budget",
      "Memory for parked conversations (shared memory, taken as they come); auto: an eighth of the machine's "
      "or the container's memory, at most half of /dev/shm; 0: nothing is parked, on disk neither.",
      {.unit = Unit::kBytes, .applies = Applies::kRestartCacheManager, .example = "16GiB"},
      Size::automatic()};
  Property<Size> conversations_ram_floor{
      this,
      "conversations.ram_floor",
      "Memory that stays available to everybody else on the machine or in the container: below it parked "
      "conversations are removed; auto: a sixteenth of it, at most 4GiB.",
      {.unit = Unit::kBytes, .applies = Applies::kRestartCacheManager, .example = "2GiB"},
      Size::automatic()};
  Property<Size> conversations_disk_budget{
      this,
      "conversations.disk_budget",
      "Disk space for parked conversations, which then survive restarts; 0: none; auto: 8GiB.",
      {.unit = Unit::kBytes, .applies = Applies::kRestartCacheManager, .example = "64GiB"},
      Size::automatic()};
  Property<Path> conversations_disk_folder{
      this,
      "conversations.disk_folder",
      "Where they lie, for one cluster at a time and readable by its user only; empty: the folder "
      "conversations of the run directory, unless that is in memory (tmpfs).",
      {.applies = Applies::kRestartCacheManager, .example = "/var/lib/strata/conversations"},
      Path()};
  Property<Size> conversations_disk_free_min{
      this,
      "conversations.disk_free_min",
      "Free space that the file system keeps whatever the budget; auto: 2GiB.",
      {.unit = Unit::kBytes, .applies = Applies::kRestartCacheManager, .example = "10GiB"},
      Size::automatic()};
  Property<Size> conversations_disk_rate{
      this,
      "conversations.disk_rate",
      "Bytes per second that parking may write to the disk; auto: no bound.",
      {.unit = Unit::kBytes, .applies = Applies::kRestartCacheManager, .example = "100MiB"},
      Size::of(256 << 20)};
  Property<uint32_t> conversations_reuse_tokens_min{
      this,
      "conversations.reuse_tokens_min",
      "Shorter beginnings of a prompt are read again instead of being looked for: taking up a state costs "
      "more.",
      {.unit = Unit::kTokens, .applies = Applies::kRestartGateway, .example = "16"},
      16,
      {.min = 1, .max = 1048576}};
  Property<uint32_t> conversations_checkpoint_every_tokens{
      this,
      "conversations.checkpoint_every_tokens",
      "Of a long prompt a state is kept at every multiple of this, beside those where messages begin; 0: "
      "only "
      "there.",
      {.unit = Unit::kTokens, .applies = Applies::kRestartGateway, .example = "2048"},
      2048,
      {.min = 0, .max = 1048576}};
  Property<uint32_t> conversations_checkpoints_max{
      this,
      "conversations.checkpoints_max",
      "States that are asked for while one prompt is read; of more places the least likely to be needed are "
      "left out.",
      {.unit = Unit::kCount, .applies = Applies::kRestartGateway, .example = "16"},
      16,
      {.min = 1, .max = 64}};
  Property<Choice> conversations_share_roots{
      this,
      "conversations.share_roots",
      "on: the system prompt and tools at the beginning of a prompt are read once for all API keys. off: one "
      "key cannot learn from the time of an answer what another one has sent.",
      {.applies = Applies::kRestartGateway, .example = "off"},
      Choice{"off"},
      {.choices = {"off", "on"}}};
  Property<uint32_t> conversations_park_after_ms{
      this,
      "conversations.park_after_ms",
      "How long a conversation is left alone before its state is copied into the memory for parked ones, "
      "beside "
      "whatever runs. One that goes on sooner costs nothing; when its place on the device is needed it is "
      "copied "
      "at once.",
      {.unit = Unit::kMilliseconds, .applies = Applies::kRestartGpuWorker, .example = "1000"},
      300,
      {.min = 0, .max = 3600000}};

  // --- gateway
  Property<std::string> gateway_listen{this,
                                       "gateway.listen",
                                       "Address and port of the HTTP server; port 0: any free one.",
                                       {.applies = Applies::kRestartGateway, .example = "127.0.0.1:8080"},
                                       "127.0.0.1:8080",
                                       {.fault = listen_address_fault}};
  Property<uint32_t> gateway_queue_limit{
      this,
      "gateway.queue_limit",
      "Requests that may wait for a free sequence; one more gets 429.",
      {.unit = Unit::kCount, .applies = Applies::kRestartGateway, .example = "32"},
      32,
      {.min = 0, .max = kQueueLimitMax}};
  Property<uint32_t> gateway_connections_max{
      this,
      "gateway.connections_max",
      "Connections that may be open at the same time; one more is closed at once. Each is an open file: the "
      "gateway raises its limit of open files as far as it may and says so when that is not far enough.",
      {.unit = Unit::kCount, .applies = Applies::kRestartGateway, .example = "4096"},
      4096,
      {.min = 16, .max = 1000000}};
  Property<uint32_t> gateway_body_bytes_max{
      this,
      "gateway.body_bytes_max",
      "Largest request body.",
      {.unit = Unit::kBytes, .applies = Applies::kRestartGateway, .example = "33554432"},
      33554432,
      {.min = 1024, .max = static_cast<uint32_t>(kRequestBodyBytesMax)}};
  Property<uint32_t> gateway_keepalive_ms{
      this,
      "gateway.keepalive_ms",
      "A silent stream gets a comment this often.",
      {.unit = Unit::kMilliseconds, .applies = Applies::kRestartGateway, .example = "5000"},
      5000,
      {.min = 100, .max = 10000}};
  Property<uint32_t> gateway_request_timeout_ms{
      this,
      "gateway.request_timeout_ms",
      "A request must have arrived so long after its first byte; a slower client's connection is closed.",
      {.unit = Unit::kMilliseconds, .applies = Applies::kRestartGateway, .example = "60000"},
      60000,
      {.min = 1000, .max = 3600000}};
  Property<uint32_t> gateway_idle_timeout_ms{
      this,
      "gateway.idle_timeout_ms",
      "An idle connection is closed after this time.",
      {.unit = Unit::kMilliseconds, .applies = Applies::kRestartGateway, .example = "75000"},
      75000,
      {.min = 1000, .max = 3600000}};

  Property<Secrets> gateway_api_keys{
      this,
      "gateway.api_keys",
      "Keys that requests must show one of, as they are or as sha256: and the SHA-256 of the key; none: "
      "nobody "
      "is asked. A command line is seen by others: a file keeps keys better.",
      {.applies = Applies::kRestartGateway,
       .example = "[sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad]"},
      Secrets{}};
  Property<Path> gateway_api_keys_file{
      this,
      "gateway.api_keys_file",
      "A file with more keys, one a line, written as in gateway.api_keys; lines that begin with # are "
      "comments.",
      {.applies = Applies::kRestartGateway, .example = "/etc/strata/api-keys"},
      Path()};
  Property<uint32_t> gateway_requests_per_key{
      this,
      "gateway.requests_per_key",
      "Requests of one API key that may run or wait at the same time, one more gets 429; 0: no limit but the "
      "queue's.",
      {.unit = Unit::kCount, .applies = Applies::kRestartGateway, .example = "4"},
      0,
      {.min = 0, .max = kQueueLimitMax}};
  Property<Words> gateway_cors_origins{
      this,
      "gateway.cors_origins",
      "Origins of web pages that may call the API from a browser, such as https://app.example; none: no CORS "
      "headers, and only the server's own pages may send requests.",
      {.applies = Applies::kRestartGateway, .example = "[https://app.example, http://localhost:3000]"},
      Words{},
      {.fault = origins_fault}};
  Property<Path> gateway_request_log{
      this,
      "gateway.request_log",
      "A file that gets a line of JSON for each request to a generating endpoint, without what was said, "
      "readable by its user only; empty: none.",
      {.applies = Applies::kRestartGateway, .example = "/var/log/strata/requests.jsonl"},
      Path()};
  Property<Size> gateway_request_log_bytes_max{
      this,
      "gateway.request_log_bytes_max",
      "Size at which that file is renamed to FILE.1 and a new one begun; four older ones are kept. auto: "
      "64MiB.",
      {.unit = Unit::kBytes, .applies = Applies::kRestartGateway, .example = "16MiB"},
      Size::automatic()};
  Property<Choice> gateway_request_log_content{
      this,
      "gateway.request_log_content",
      "on: its lines hold the requests' bodies and the answers' text, too.",
      {.applies = Applies::kRestartGateway, .example = "off"},
      Choice{"off"},
      {.choices = {"off", "on"}}};

  Property<Path> gateway_tls_certificate{
      this,
      "gateway.tls_certificate",
      "The certificate to speak https with, PEM, the intermediate ones behind it in the same file; empty: "
      "plain "
      "http. With gateway.tls_key, or neither.",
      {.applies = Applies::kRestartGateway, .example = "/etc/strata/tls/fullchain.pem"},
      Path()};
  Property<Path> gateway_tls_key{
      this,
      "gateway.tls_key",
      "The certificate's private key, PEM without a passphrase, in a file that not everybody may read.",
      {.applies = Applies::kRestartGateway, .example = "/etc/strata/tls/key.pem"},
      Path()};

  // --- responses: /v1/responses
  Property<Choice> responses_store{this,
                                   "responses.store",
                                   "on: answers of /v1/responses are kept, unless the request says store: "
                                   "false, so that later requests can "
                                   "go on from them (previous_response_id). off: nothing is kept.",
                                   {.applies = Applies::kRestartGateway, .example = "on"},
                                   Choice{"on"},
                                   {.choices = {"on", "off"}}};
  Property<Path> responses_file{
      this,
      "responses.file",
      "The SQLite file that they are kept in, readable by its user only; empty: responses.sqlite in the run "
      "directory.",
      {.applies = Applies::kRestartGateway, .example = "/var/lib/strata/responses.sqlite"},
      Path()};
  Property<Size> responses_bytes_max{
      this,
      "responses.bytes_max",
      "Text that is kept; beyond it the conversations that were unused longest are removed. auto: 1GiB.",
      {.unit = Unit::kBytes, .applies = Applies::kRestartGateway, .example = "256MiB"},
      Size::automatic()};
  Property<uint32_t> responses_unused_days_max{
      this,
      "responses.unused_days_max",
      "Days after its last use that a conversation is removed; 0: never.",
      {.unit = Unit::kCount, .applies = Applies::kRestartGateway, .example = "30"},
      30,
      {.min = 0, .max = 3650}};

  // --- sampling: used where neither the request nor the model's file says anything
  Property<double> sampling_temperature{
      this, "sampling.temperature",  "0 is greedy.", {.applies = Applies::kRestartGateway, .example = "1.0"},
      1.0,  {.min = 0.0, .max = 2.0}};
  Property<double> sampling_top_p{
      this,
      "sampling.top_p",
      "Smallest set of tokens with this much probability; 1: off.",
      {.unit = Unit::kRatio, .applies = Applies::kRestartGateway, .example = "0.95"},
      0.95,
      {.min = 0.0001, .max = 1.0}};
  Property<uint32_t> sampling_top_k{
      this,
      "sampling.top_k",
      "The most likely tokens; 0: off.",
      {.unit = Unit::kTokens, .applies = Applies::kRestartGateway, .example = "20"},
      20,
      {.min = 0, .max = 1000000}};
  Property<double> sampling_min_p{
      this,
      "sampling.min_p",
      "Least probability, relative to the most likely token; 0: off.",
      {.unit = Unit::kRatio, .applies = Applies::kRestartGateway, .example = "0.0"},
      0.0,
      {.min = 0.0, .max = 1.0}};

  // --- thinking
  Property<std::string> thinking_template_variable{
      this,
      "thinking.template_variable",
      "The chat template's variable that switches thinking on.",
      {.applies = Applies::kRestartGateway, .example = "enable_thinking"},
      "enable_thinking"};
  Property<Choice> thinking_default{
      this,
      "thinking.default",
      "For requests that do not say: on, off, or what the template does by itself.",
      {.applies = Applies::kRestartGateway, .example = "template"},
      Choice{"template"},
      {.choices = {"template", "on", "off"}}};
  Property<uint32_t> thinking_minimal_tokens{
      this,
      "thinking.minimal_tokens",
      "Tokens of thinking at the reasoning effort minimal; 0: no limit of its own.",
      {.unit = Unit::kTokens, .applies = Applies::kRestartGateway, .example = "256"},
      256,
      {.min = 0, .max = 10000000}};
  Property<uint32_t> thinking_low_tokens{
      this,
      "thinking.low_tokens",
      "Tokens of thinking at the reasoning effort low; 0: no limit of its own.",
      {.unit = Unit::kTokens, .applies = Applies::kRestartGateway, .example = "1024"},
      1024,
      {.min = 0, .max = 10000000}};
  Property<uint32_t> thinking_medium_tokens{
      this,
      "thinking.medium_tokens",
      "Tokens of thinking at the reasoning effort medium; 0: no limit of its own.",
      {.unit = Unit::kTokens, .applies = Applies::kRestartGateway, .example = "4096"},
      4096,
      {.min = 0, .max = 10000000}};
  Property<uint32_t> thinking_high_tokens{
      this,
      "thinking.high_tokens",
      "Tokens of thinking at the reasoning effort high; 0: no limit of its own.",
      {.unit = Unit::kTokens, .applies = Applies::kRestartGateway, .example = "16384"},
      16384,
      {.min = 0, .max = 10000000}};
  Property<uint32_t> thinking_xhigh_tokens{
      this,
      "thinking.xhigh_tokens",
      "Tokens of thinking at the reasoning effort xhigh; 0: no limit of its own.",
      {.unit = Unit::kTokens, .applies = Applies::kRestartGateway, .example = "0"},
      0,
      {.min = 0, .max = 10000000}};

  // --- supervisor
  Property<uint32_t> supervisor_backoff_ms{
      this,
      "supervisor.backoff_ms",
      "Pause before the first restart of a process; doubles each time.",
      {.unit = Unit::kMilliseconds, .applies = Applies::kRestartAll, .example = "200"},
      200,
      {.min = 1, .max = 60000}};
  Property<uint32_t> supervisor_backoff_max_ms{
      this,
      "supervisor.backoff_max_ms",
      "Longest pause before a restart.",
      {.unit = Unit::kMilliseconds, .applies = Applies::kRestartAll, .example = "10000"},
      10000,
      {.min = 1, .max = 600000}};
  Property<uint32_t> supervisor_drain_ms{
      this,
      "supervisor.drain_ms",
      "At stop, running answers may take this long to end by themselves.",
      {.unit = Unit::kMilliseconds, .applies = Applies::kRestartAll, .example = "3000"},
      3000,
      {.min = 0, .max = 4000}};

  // --- log, metrics
  Property<Choice> log_level{this,
                             "log.level",
                             "What is logged.",
                             {.applies = Applies::kRestartAll, .example = "info"},
                             Choice{"info"},
                             {.choices = {"debug", "info", "warn", "error"}}};
  Property<Choice> log_format{this,
                              "log.format",
                              "Lines for people or JSON for machines.",
                              {.applies = Applies::kRestartAll, .example = "text"},
                              Choice{"text"},
                              {.choices = {"text", "json"}}};
  Property<std::string> metrics_listen{
      this,
      "metrics.listen",
      "Host and first port where each process also serves its own metrics over HTTP (gpu-worker on the "
      "first port, cache-manager on the next, then the expert workers); empty: off, /metrics of the "
      "gateway has everything.",
      {.applies = Applies::kRestartAll, .example = "127.0.0.1:9470"},
      "",
      {.fault = optional_listen_address_fault}};
};

}  // namespace strata::config
