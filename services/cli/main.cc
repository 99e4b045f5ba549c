// The `strata` command: options in, commands.h out. The only file with CLI11.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "services/base/build_info.h"
#include "services/base/limits.h"
#include "services/cli/commands.h"
#include "services/cli/run_dir.h"
#include "services/config/nearest.h"
#include "services/synthetic/model_spec.h"

namespace strata::cli {
namespace {

void add_config_options(CLI::App& command, config::LoadOptions& options, bool required) {
  auto* path = command.add_option("--config", options.path, "The deployment's YAML file");
  if (required) path->required();
  command.add_option("--set", options.sets, "PATH=VALUE over the file, e.g. experts.slots=25%; repeats")
      ->allow_extra_args(false);
  command.add_flag("--allow-unknown", options.allow_unknown, "Unknown settings are warnings, not errors");
}

void add_run_dir(CLI::App& command, std::string& run_dir) {
  run_dir = default_run_dir();
  command.add_option("--run-dir", run_dir, "Folder of the cluster's sockets")->capture_default_str();
}

// A command is an object that lives as long as the parser: its options, and what to do with them.
class Commands {
 public:
  explicit Commands(CLI::App& app) {
    app.require_subcommand(1);
    app.set_version_flag("--version", fmt::format("strata {} ({})", version(), commit()));
    app.footer(
        "Exit codes: 0 done, 1 it did not work, 2 a fault in options, configuration or model, 3 no cluster "
        "runs there.\n"
        "Examples:\n"
        "  strata up --config configs/demo.yaml\n"
        "  strata chat\n"
        "  strata status --json\n"
        "  strata inspect models/strata-demo.gguf");
    add_up(app);
    add_down(app);
    add_status(app);
    add_top(app);
    add_chat(app);
    add_inspect(app);
    add_config(app);
    add_profile(app);
    add_residency(app);
    add_plan(app);
    add_bench(app);
    add_probe(app);
    add_conversations(app);
    add_simulate(app);
    auto* shown = app.add_subcommand("version", "Print version and commit");
    shown->callback([this] { exit_code = run_version(); });
  }

  int exit_code = 0;

 private:
  void add_up(CLI::App& app) {
    auto* command = app.add_subcommand("up", "Start a cluster and supervise it until SIGTERM or Ctrl-C");
    add_config_options(*command, up_.load, true);
    add_run_dir(*command, up_.run_dir);
    command->add_option("--listen", up_.listen,
                        "HOST:PORT of the HTTP server, instead of gateway.listen; port 0: any free one");
    command->add_flag("--detach", up_.detach, "Return when it is ready; log to RUN_DIR/strata.log");
    command->footer(
        "Prints \"ready http://HOST:PORT\" when all processes are ready. Processes that die are restarted.\n"
        "Examples:\n"
        "  strata up --config configs/demo.yaml --listen 127.0.0.1:9000\n"
        "  strata up --config configs/demo.yaml --set experts.slots=50% --set log.level=debug\n"
        "  strata up --config configs/demo.yaml --detach && strata chat && strata down");
    command->callback([this] { exit_code = run_up(up_); });
  }

  void add_down(CLI::App& app) {
    auto* command =
        app.add_subcommand("down", "Stop the cluster: running answers drain first, then all processes end");
    add_run_dir(*command, down_.run_dir);
    command->footer("Returns when the supervisor is gone. Example:\n  strata down --run-dir /run/strata");
    command->callback([this] { exit_code = run_down(down_); });
  }

  void add_status(CLI::App& app) {
    auto* command = app.add_subcommand(
        "status", "Show the processes, their memory, residency and what differs from the file");
    add_run_dir(*command, status_.run_dir);
    command->add_flag("--json", status_.json, "One JSON object for programs");
    command->footer("Examples:\n  strata status\n  strata status --json | python3 -m json.tool");
    command->callback([this] { exit_code = run_status(status_); });
  }

  void add_top(CLI::App& app) {
    auto* command = app.add_subcommand("top", "Watch tokens, windows, expert hits and each expert thread");
    add_run_dir(*command, top_.run_dir);
    command->add_option("--interval", top_.interval_seconds, "Seconds between two looks")
        ->check(CLI::Range(0.1, 3600.0))
        ->capture_default_str();
    command->add_option("--count", top_.count,
                        "Looks to show; 0: until Ctrl-C, or one if the output is no terminal");
    command->footer("Examples:\n  strata top\n  strata top --interval 5 --count 1 > busy.txt");
    command->callback([this] { exit_code = run_top(top_); });
  }

  void add_chat(CLI::App& app) {
    auto* command = app.add_subcommand("chat", "Talk to the model; from a pipe: one prompt per line");
    add_run_dir(*command, chat_.run_dir);
    command->add_option("--url", chat_.url,
                        "Any OpenAI-compatible server instead, e.g. http://127.0.0.1:8080");
    command->add_option("--system", chat_.system, "System prompt");
    command->add_option("--temperature", chat_.temperature, "0: greedy; default: the model's");
    command->add_option("--top-p", chat_.top_p, "Default: the model's");
    command->add_option("--seed", chat_.seed, "The same seed gives the same answer");
    command->add_option("--max-tokens", chat_.max_tokens, "Longest answer; 0: as the server likes")
        ->capture_default_str();
    command->footer(
        "In the chat: /help, /system TEXT, /reset, /stats, /exit. Ctrl-C stops an answer.\n"
        "Examples:\n"
        "  strata chat --temperature 0\n"
        "  echo \"What is a violin?\" | strata chat --seed 1");
    command->callback([this] { exit_code = run_chat(chat_); });
  }

  void add_inspect(CLI::App& app) {
    auto* command = app.add_subcommand("inspect", "Show what a GGUF file holds and what of it fits where");
    command->add_option("file", inspect_.path, "The file, or the first shard of several")->required();
    command->add_flag("--tensors", inspect_.tensors, "List every tensor");
    command->add_flag("--json", inspect_.json, "One JSON object for programs");
    command->footer("Example:\n  strata inspect models/strata-demo.gguf --tensors");
    command->callback([this] { exit_code = run_inspect(inspect_); });
  }

  void add_config(CLI::App& app) {
    auto* command = app.add_subcommand("config", "Check, show and explain configurations");
    command->require_subcommand(1);
    command->footer(
        "Examples:\n  strata config check --config configs/demo.yaml\n  strata config show --config "
        "configs/demo.yaml");
    auto* check = command->add_subcommand("check", "Print OK, or every fault with its line");
    add_config_options(*check, config_, true);
    check->callback([this] { exit_code = run_config_check(config_); });
    auto* show = command->add_subcommand("show", "Print the effective settings with their meaning");
    add_config_options(*show, config_, true);
    show->add_flag("!--no-comments", config_comments_, "Values only");
    show->callback([this] { exit_code = run_config_show(config_, config_comments_); });
    auto* reference = command->add_subcommand(
        "reference", "Print the reference page of all settings (docs/configuration.md)");
    reference->callback([this] { exit_code = run_config_reference(); });
  }

  void add_profile(CLI::App& app) {
    auto* command = app.add_subcommand("profile", "Record, build, compare and show routing profiles");
    command->require_subcommand(1);
    command->footer(
        "A profile says how often each expert was used; it fills the arena at the start (experts.profile). "
        "A\n"
        "trace says which experts each token used.\n"
        "Examples:\n"
        "  strata profile record --out models/mine.profile --prompts prompts.txt\n"
        "  strata profile record --trace traces/monday.bin --seconds 3600\n"
        "  strata profile build --traces traces --out models/mine.profile --model models/mine.gguf\n"
        "  strata profile merge a.profile b.profile --weights 1,0.5 --out both.profile\n"
        "  strata profile show models/mine.profile --svg mine.svg\n"
        "  strata profile cross-validate --traces traces --budgets 10%,25%,50%");
    add_profile_record(*command);
    add_profile_build(*command);
    auto* show = command->add_subcommand("show", "Print a heat map and the most used experts of each layer");
    show->add_option("file", show_.path, "The profile")->required();
    show->add_option("--model", show_.model, "Check that the profile is of this GGUF file");
    show->add_option("--top", show_.top, "Experts to name per layer")->capture_default_str();
    show->add_option("--svg", show_.svg, "Also draw the heat map into this file, a cell per expert");
    show->add_flag("!--no-map", show_.map, "Without the heat map");
    show->callback([this] { exit_code = run_profile_show(show_); });
  }

  CLI::App* add_residency_change(CLI::App& residency, const std::string& name, const std::string& help) {
    auto* command = residency.add_subcommand(name, help);
    add_run_dir(*command, residency_change_.run_dir);
    command->add_flag("--json", residency_change_.json, "Print what is now as one JSON object");
    command->callback([this] { exit_code = run_residency_change(residency_change_); });
    return command;
  }

  void add_residency(CLI::App& app) {
    auto* command =
        app.add_subcommand("residency", "Show which experts are resident, and change it while it runs");
    command->require_subcommand(1);
    command->footer(
        "Changes count at once and survive a restart of the gpu-worker; when the cache manager restarts, "
        "the\n"
        "configuration counts again (strata config show).\n"
        "Examples:\n"
        "  strata residency show --seconds 5\n"
        "  strata residency pin 0:17 0:18 3:5\n"
        "  strata residency policy lru\n"
        "  strata residency rate --per-window 25% --copy-budget 2GiB");
    auto* show =
        command->add_subcommand("show", "Quota, residents, pins, hit rate and exchanges of each layer");
    add_run_dir(*show, residency_show_.run_dir);
    show->add_flag("--json", residency_show_.json, "One JSON object for programs");
    show->add_option("--seconds", residency_show_.seconds,
                     "Hits and exchanges of so long from now on; 0: since the processes started")
        ->check(CLI::Range(0.0, 3600.0))
        ->capture_default_str();
    show->callback([this] { exit_code = run_residency_show(residency_show_); });

    auto* pin = add_residency_change(*command, "pin", "Keep experts resident, fetching them at once");
    pin->add_option("experts", residency_change_.pin, "LAYER:EXPERT, several")->required();
    auto* unpin = add_residency_change(*command, "unpin", "Leave pinned experts to the policy again");
    auto* unpinned = unpin->add_option("experts", residency_change_.unpin, "LAYER:EXPERT, several");
    unpin->add_flag("--all", residency_change_.unpin_all, "All pinned experts")->excludes(unpinned);
    auto* policy =
        add_residency_change(*command, "policy", "Another policy; what is resident stays at first");
    policy->add_option("name", residency_change_.policy, "As experts.policy")->required();
    auto* quotas = add_residency_change(*command, "quotas", "Divide the slots between the layers");
    quotas
        ->add_option("slots", residency_change_.quotas,
                     "Slots of each layer, comma-separated, summing to all; auto: as the policy likes")
        ->required();
    auto* rate = add_residency_change(*command, "rate", "How fast exchanges may be made");
    rate->require_option(1, 0);
    rate->add_option("--per-window", residency_change_.exchanges_per_window,
                     "As experts.exchanges_per_window: a number, a percentage of the layers, or auto");
    rate->add_option("--copy-budget", residency_change_.copy_budget,
                     "As experts.copy_budget: bytes per second, e.g. 2GiB, or auto");
    rate->add_option("--in-flight", residency_change_.exchanges_in_flight,
                     "As experts.exchanges_in_flight: a number (0: none), or auto");
  }

  void add_simulate(CLI::App& app) {
    auto* command = app.add_subcommand(
        "simulate", "Replay recorded or generated routing through residency policies, without a model");
    command->add_option("--traces", simulate_.traces,
                        "Folder with recorded routing (*.bin, and NAME.json beside it), or one such file");
    command->add_option(
        "--generate", simulate_.generate,
        "Instead of traces: mild, strong, drift or alternating, then KEY=VALUE, separated by commas: "
        "tokens, conversations, layers, experts, used, topics, switch (tokens per topic), prompt (tokens "
        "at a switch), skew, repeat, drift, seed");
    command
        ->add_option("--budgets", simulate_.budgets,
                     "Slots over all layers: numbers or percentages of all experts")
        ->delimiter(',')
        ->capture_default_str();
    command->add_option("--policies", simulate_.policies, "As experts.policy; default: all")->delimiter(',');
    command
        ->add_option("--exchanges-per-window", simulate_.exchanges_per_window,
                     "Exchanges that may begin per window, fractions too; default: one for every two layers")
        ->check(CLI::Range(0.0, 1e6));
    command
        ->add_option("--bytes-per-second", simulate_.bytes_per_second,
                     "Copies, bytes per second; 0: no limit")
        ->check(CLI::Range(0.0, 1e15))
        ->capture_default_str();
    command
        ->add_option("--windows-per-second", simulate_.windows_per_second,
                     "Speed that bytes per second refer to")
        ->check(CLI::Range(0.001, 1e6))
        ->capture_default_str();
    command
        ->add_option("--windows-per-look", simulate_.windows_per_look,
                     "Windows after which the policy looks at the usage")
        ->check(CLI::Range(1, 100000))
        ->capture_default_str();
    command
        ->add_option("--landing-windows", simulate_.landing_windows,
                     "Windows that a copy takes beyond the boundary where it begins")
        ->check(CLI::Range(0, 100000))
        ->capture_default_str();
    command->add_option("--prefill-chunk", simulate_.prefill_chunk, "Prompt tokens per window, at most")
        ->check(CLI::Range(1U, kPrefillChunkTokensMax))
        ->capture_default_str();
    command
        ->add_option("--layers", simulate_.layers,
                     "Count only the first so many layers; 0: all but the draft layer")
        ->check(CLI::Range(0U, kLayersMax))
        ->capture_default_str();
    command
        ->add_option("--expert-bytes", simulate_.expert_bytes,
                     "Size of an expert; default: one of the demo model")
        ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 40))
        ->capture_default_str();
    command->add_option("--decay-tokens", simulate_.decay_tokens, "As experts.decay_tokens")
        ->check(CLI::Range(1.0, 1e9))
        ->capture_default_str();
    command->add_option(
        "--profile", simulate_.profile,
        "What is known at the start: a profile, or none; default: what the other conversations teach");
    command->add_flag("--continuous", simulate_.continuous,
                      "One arena for all conversations, one after another; with --profile");
    command->add_flag("--each", simulate_.each, "A line for each conversation, too");
    command->add_flag("--json", simulate_.json,
                      "An array of rows: policy, budget, hit_rate, oracle_hit_rate, ...");
    command->add_option("--plot", simulate_.plot, "An SVG file for hit rates over budgets");
    command->footer(
        "A hit rate is that of the generated tokens, the mean over the conversations. oracle: the best fixed "
        "placement,\n"
        "known in advance. Belady: unlimited exchanges after misses, the future known. foresight: the same "
        "limits as the\n"
        "policies, the next 16 tokens known. least: the worst conversation, of its oracle's. regret: Belady "
        "less hit rate.\n"
        "Examples:\n"
        "  strata simulate --traces models/traces --budgets 10%,25%,50%\n"
        "  strata simulate --traces models/traces --policies topic,lru --exchanges-per-window 0.667 --each\n"
        "  strata simulate --generate alternating,tokens=20000 --plot hits.svg");
    command->callback([this] { exit_code = run_simulate(simulate_); });
  }

  void add_profile_record(CLI::App& command) {
    auto* record = command.add_subcommand(
        "record", "Run prompts through the running cluster, or watch it, and write what was used");
    add_run_dir(*record, record_.run_dir);
    record->add_option("--out", record_.out, "The profile to write");
    record->add_option("--trace", record_.trace,
                       "The trace to write: tokens and experts of every prompt and answer");
    auto* prompts = record->add_option("--prompts", record_.prompts,
                                       "File with one prompt per line; default: a built-in mix");
    record
        ->add_option("--seconds", record_.seconds,
                     "Ask nothing; record what others ask within so many seconds (Ctrl-C: until now)")
        ->check(CLI::Range(0.1, 1e6))
        ->excludes(prompts);
    record->add_option("--max-tokens", record_.max_tokens, "Longest answer to a prompt of --prompts")
        ->check(CLI::Range(1u, 1u << 20))
        ->capture_default_str();
    record->footer(
        "Windows do not wait for the recording: what it cannot take in time is left out and said.");
    record->callback([this] { exit_code = run_profile_record(record_); });
  }

  void add_profile_build(CLI::App& command) {
    auto* build = command.add_subcommand("build", "Make a profile from recorded traces");
    build->add_option("--traces", build_.traces, "A trace, or a folder with *.bin")->required();
    build->add_option("--out", build_.out, "The profile to write")->required();
    build->add_option("--model", build_.model,
                      "GGUF file that was recorded; without it no cluster takes the profile");
    build
        ->add_option("--layers", build_.layers,
                     "First layers to count; 0: the model's, else all of the trace")
        ->capture_default_str();
    build->callback([this] { exit_code = run_profile_build(build_); });
    auto* merge = command.add_subcommand("merge", "Add profiles of one model");
    merge->add_option("files", merge_.paths, "The profiles")->required();
    merge->add_option("--weights", merge_.weights, "How often each counts, e.g. 1,0.5; default: 1 each")
        ->delimiter(',');
    merge->add_option("--out", merge_.out, "The profile to write")->required();
    merge->callback([this] { exit_code = run_profile_merge(merge_); });
    auto* validate = command.add_subcommand("cross-validate",
                                            "Judge profiles: each conversation by the profile of all others");
    validate->add_option("--traces", validate_.traces, "A trace, or a folder with *.bin")->required();
    validate
        ->add_option("--budgets", validate_.budgets,
                     "Slots over all layers: numbers or shares of all experts")
        ->delimiter(',')
        ->capture_default_str();
    validate->add_option("--model", validate_.model, "GGUF file that was recorded: its trunk layers count");
    validate
        ->add_option("--layers", validate_.layers,
                     "First layers to count; 0: the model's, else all of the trace")
        ->capture_default_str();
    validate->add_flag("--json", validate_.json, "A JSON list for programs");
    validate->footer(
        "Prints hit rates of generated tokens with placements that stand still: by the profile (mean and "
        "the\n"
        "worst conversation), of what is asked for first, and the best one for each conversation, known in\n"
        "advance (oracle).");
    validate->callback([this] { exit_code = run_profile_cross_validate(validate_); });
  }

  void add_plan(CLI::App& app) {
    auto* command = app.add_subcommand(
        "plan", "Say what of a model fits a GPU and the memory beside it, without starting anything");
    add_config_options(*command, plan_.load, false);
    command
        ->add_option("--device", plan_.device,
                     "host or cuda; default: cuda if a card is named, else as configured")
        ->check(CLI::IsMember({"host", "cuda"}));
    command
        ->add_option("--vram", plan_.vram,
                     "Size of the card; several are compared: 8GiB,12GiB,24GiB. Default: the usual ones")
        ->delimiter(',');
    command
        ->add_option("--card", plan_.cards, "Cards by name, e.g. \"RTX 4090,RTX 3060\"; all: each one known")
        ->delimiter(',');
    command->add_option("--ram", plan_.ram, "Host memory for the cluster; default: what is available here");
    auto* model = command->add_option("--model", plan_.model, "A GGUF file instead of the configured one");
    command
        ->add_option("--synthetic", plan_.synthetic,
                     "Instead of a file a shape: NAME[:layers=N][:experts=N][:types=TYPE|GATE_UP/DOWN]"
                     "[:dense=TYPE][:ngram=small|full]")
        ->excludes(model);
    command->add_option("--profile", plan_.profile,
                        "Routing profile for the expected hits instead of the configured one");
    command->add_flag("--json", plan_.json, "One JSON object for programs");
    command->footer(fmt::format(
        "Uses the code that the gpu-worker plans with. Of a card {} MiB are left to the driver; the worker "
        "asks\n"
        "the card. Exit code 1: it fits none of the cards.\n"
        "Shapes:\n{}"
        "Examples:\n"
        "  strata plan --config configs/demo.yaml\n"
        "  strata plan --config configs/demo.yaml --set device.type=cuda --vram 8GiB,12GiB,16GiB,24GiB\n"
        "  strata plan --synthetic qwen3.8-flash-next:types=Q2_K/Q4_0:ngram=full --card \"RTX 4090\" --ram "
        "64GiB",
        kPlanDriverBytes >> 20, synthetic::preset_list()));
    command->callback([this] { exit_code = run_plan(plan_); });
  }

  void add_bench(CLI::App& app) {
    auto* command = app.add_subcommand(
        "bench", "Measure decoding and prefill of a model, or of one of its size with made-up weights");
    add_config_options(*command, bench_.load, false);
    command->add_option("--synthetic", bench_.synthetic,
                        "NAME[:layers=N][:experts=N][:types=TYPE|GATE_UP/DOWN][:dense=TYPE]"
                        "[:ngram=small|full][:seed=N]: a model of random weights");
    command->add_option(
        "--routing", bench_.routing,
        "Instead of the router: mild, strong, uniform or skew=A/B/C, with ,drift=SHARE,seed=N; "
        "or trace:FILE; none: the router. Default with --synthetic: mild");
    command->add_option("--out", bench_.out, "Only write the synthetic model into this file")
        ->needs("--synthetic");
    command->add_option("--folder", bench_.folder, "Where a synthetic model lies while it is measured")
        ->capture_default_str();
    command->add_option("--clients", bench_.clients, "Clients that decode at the same time; several: 1,4,8")
        ->delimiter(',')
        ->check(CLI::Range(uint32_t{1}, kSequencesMax))
        ->capture_default_str();
    command->add_flag(
        "--constrained", bench_.constrained,
        "Measure each number of clients a second time, with answers that are held to a grammar");
    command->add_option("--tokens", bench_.tokens, "Length of each answer")
        ->check(CLI::Range(2u, 1u << 20))
        ->capture_default_str();
    command
        ->add_option("--prompts", bench_.prompts,
                     "Prompt lengths for prefill, as far as the context allows; 0: none")
        ->delimiter(',')
        ->capture_default_str();
    command
        ->add_option("--warm-up", bench_.warm_up_tokens,
                     "Tokens at most until the hit rate should have settled; 0: begin cold")
        ->capture_default_str();
    command->add_option(
        "--json", bench_.json,
        "The report for programs into this file; -: to standard output, the table to standard error");
    command->footer(
        fmt::format("Starts a cluster of its own beside any other and ends it, measures, prints a table. "
                    "What is synthetic\n"
                    "is said in every output: such figures are speeds only, answers mean nothing.\n"
                    "Synthetic models:\n{}"
                    "Examples:\n"
                    "  strata bench --config configs/demo.yaml\n"
                    "  strata bench --synthetic qwen3.8-flash-next:types=Q2_K/Q4_0 --set device.type=cuda "
                    "--json out.json\n"
                    "  strata bench --synthetic qwen3.8-flash-next:layers=8 --routing strong,drift=0.05 "
                    "--set experts.slots=40%\n"
                    "  strata bench --synthetic demo-shape --routing trace:models/traces/routing.bin "
                    "--prompts 512 --tokens 100\n"
                    "  strata bench --synthetic qwen3.8-flash-next --out /models/synthetic.gguf",
                    synthetic::preset_list()));
    command->callback([this] {
      std::erase(bench_.prompts, 0u);
      exit_code = run_bench(bench_);
    });
  }

  void add_probe(CLI::App& app) {
    auto* command = app.add_subcommand(
        "probe", "Measure what coming back to a conversation costs: time to first token, like a client");
    command->add_option("pattern", probe_.pattern, "alternate, loop, shared, edit, compact, or all")
        ->required()
        ->check(CLI::IsMember({"alternate", "loop", "shared", "edit", "compact", "all"}));
    add_config_options(*command, probe_.load, false);
    command->get_option("--config")->description("Start a cluster of its own of this YAML file, and end it");
    command->get_option("--set")->needs("--config");
    add_run_dir(*command, probe_.run_dir);
    command->get_option("--run-dir")->description("Folder of the cluster that is measured without --config");
    command
        ->add_option("--url", probe_.url, "Any OpenAI-compatible server instead, e.g. http://127.0.0.1:8080")
        ->excludes("--config");
    command->add_option("--conversations", probe_.conversations, "Conversations, or chats of a shared prompt")
        ->check(CLI::Range(2u, 1000u))
        ->capture_default_str();
    command->add_option("--tokens", probe_.tokens, "Length of a history or of a shared system prompt, about")
        ->check(CLI::Range(10u, 1u << 20))
        ->capture_default_str();
    command
        ->add_option(
            "--rounds", probe_.rounds,
            "How often each conversation is come back to, edited or compacted; shared: system prompts")
        ->check(CLI::Range(1u, 1000u))
        ->capture_default_str();
    command->add_option("--steps", probe_.steps, "Steps of an agent loop, about 50 tokens each")
        ->check(CLI::Range(1u, 100'000u))
        ->capture_default_str();
    command->add_option("--answer-tokens", probe_.answer_tokens, "Length of each answer, at most")
        ->check(CLI::Range(1u, 1u << 16))
        ->capture_default_str();
    command->add_option("--seed", probe_.seed,
                        "Of the texts; default: another one each time, so that nothing is known of them");
    auto* pairs =
        command
            ->add_option("--pairs", probe_.pairs,
                         "Pairs of agent loops, with the settings and with those of --against, each "
                         "in a fresh cluster; 0: none")
            ->needs("--config")
            ->check(CLI::Range(0u, 1000u))
            ->capture_default_str();
    command
        ->add_option("--against", probe_.against,
                     "PATH=VALUE over the settings in the second half of each pair; repeats")
        ->allow_extra_args(false)
        ->needs(pairs)
        ->capture_default_str();
    command->add_flag("--json", probe_.json, "One JSON object for programs");
    command->add_option("--plot", probe_.plot, "Also draw every request into this SVG file");
    command->footer(
        "alternate: conversations take turns: cold (first read), warm (the next turn at once), switched "
        "(after "
        "all\n"
        "  others), repeated (the first request again: its greedy answer must be the same, else exit code "
        "1)\n"
        "loop: one conversation grows by small messages, one step right after the other\n"
        "shared: chats with one system prompt    edit: the last message of the user is another one\n"
        "compact: a summary replaces the history, the system prompt stays\n"
        "Examples:\n"
        "  strata probe alternate --config configs/demo.yaml --conversations 4 --tokens 1500 --json\n"
        "  strata probe all --plot probe.svg\n"
        "  strata probe loop --config configs/demo.yaml --pairs 10 --against conversations.ram_budget=0\n"
        "  strata probe shared --url http://127.0.0.1:8080 --tokens 1000");
    command->callback([this] { exit_code = run_probe(probe_); });
  }

  CLI::App* add_conversations_command(CLI::App& conversations, const std::string& name,
                                      const std::string& help,
                                      int (*run)(const ConversationsOptions& options)) {
    auto* command = conversations.add_subcommand(name, help);
    add_run_dir(*command, conversations_.run_dir);
    command->add_flag("--json", conversations_.json, "One JSON object for programs");
    command->callback([this, run] { exit_code = run(conversations_); });
    return command;
  }

  void add_conversations(CLI::App& app) {
    auto* command = app.add_subcommand("conversations",
                                       "Show and look after parked conversations: in memory and on disk");
    command->require_subcommand(1);
    command->footer(
        "An ID may be shortened to a beginning that only one snapshot has.\n"
        "Examples:\n"
        "  strata conversations list\n"
        "  strata conversations show 3f2a\n"
        "  strata conversations export 3f2a /tmp/chat.snapshot\n"
        "  strata conversations import /tmp/chat.snapshot\n"
        "  strata conversations drop --all");
    const char* id = "The snapshot's id, or its beginning";
    add_conversations_command(*command, "list", "What is parked, the last used first, and the tiers' use",
                              run_conversations_list);
    auto* show = add_conversations_command(*command, "show", "One snapshot, or why it is gone",
                                           run_conversations_show);
    show->add_option("id", conversations_.id, id)->required();
    auto* drop = add_conversations_command(*command, "drop", "Forget snapshots, in memory and on disk",
                                           run_conversations_drop);
    auto* dropped = drop->add_option("id", conversations_.id, id);
    drop->add_flag("--conversation", conversations_.conversation,
                   "All snapshots of the conversation that it belongs to")
        ->needs(dropped);
    drop->add_flag("--all", conversations_.all, "Everything")->excludes(dropped);
    auto* exported = add_conversations_command(*command, "export", "Write a snapshot into a new file",
                                               run_conversations_export);
    exported->add_option("id", conversations_.id, id)->required();
    exported->add_option("file", conversations_.file, "Must not exist; on the cluster's machine")->required();
    auto* imported = add_conversations_command(
        *command, "import", "Park what was exported from a cluster of the same model and settings",
        run_conversations_import);
    imported->add_option("file", conversations_.file, "On the cluster's machine")->required();
  }

  UpOptions up_;
  DownOptions down_;
  StatusOptions status_;
  TopOptions top_;
  ChatOptions chat_;
  InspectOptions inspect_;
  config::LoadOptions config_;
  bool config_comments_ = true;
  ProfileRecordOptions record_;
  ProfileBuildOptions build_;
  ProfileMergeOptions merge_;
  ProfileShowOptions show_;
  ResidencyShowOptions residency_show_;
  ResidencyChangeOptions residency_change_;
  ProfileCrossValidateOptions validate_;
  PlanOptions plan_;
  BenchOptions bench_;
  ProbeOptions probe_;
  ConversationsOptions conversations_;
  SimulateCommandOptions simulate_;
};

// The deepest command that was named: the one whose options were meant.
const CLI::App* innermost(const CLI::App* app) {
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  return app;
}

// An unknown word is answered with the nearest known one, everything else with what CLI11 says.
int wrong_options(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  const CLI::App* command = innermost(&app);
  std::vector<std::string> known;
  for (const auto* option : command->get_options()) known.push_back(option->get_name());
  for (const auto* sub : command->get_subcommands([](const CLI::App*) { return true; }))
    known.push_back(sub->get_name());
  // CLI11 names the words it did not expect; where it misses a command, the mistyped one is among the words.
  std::string said = error.what();
  bool command_missing = command->get_require_subcommand_min() > 0 && command->get_subcommands().empty();
  std::string hint;
  for (int i = 1; i < argc && hint.empty(); ++i) {
    std::string word = std::string(argv[i]).substr(0, std::string(argv[i]).find('='));
    bool named = word == command->get_name() || std::find(known.begin(), known.end(), word) != known.end();
    bool meant = command_missing || word.starts_with("--") || said.find(word) != std::string::npos;
    if (!named && meant) hint = config::did_you_mean(word, known);
  }
  std::fprintf(stderr, "strata: %s%s\nstrata %s--help explains the options\n", said.c_str(), hint.c_str(),
               command == &app ? "" : (command->get_name() + " ").c_str());
  return kExitFault;
}

int run(int argc, char** argv) {
  CLI::App app{"Strata: local inference for very large mixture-of-experts models.", "strata"};
  Commands commands(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return wrong_options(app, error, argc, argv);
  }
  return commands.exit_code;
}

}  // namespace
}  // namespace strata::cli

int main(int argc, char** argv) { return strata::cli::run(argc, argv); }
