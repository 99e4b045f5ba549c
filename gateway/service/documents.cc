#include "gateway/service/documents.h"

#include <fmt/format.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "gateway/api/json_text.h"
#include "gateway/api/utf8.h"
#include "gateway/generation/openai_format.h"
#include "gateway/service/slots.h"
#include "services/base/build_info.h"

namespace strata::gateway {

namespace {

constexpr std::string_view kOwner = "strata";

boost::json::object model_json(const ModelCard& card, const ClusterView& view) {
  boost::json::object out;
  out["id"] = card.id;
  out["object"] = "model";
  out["created"] = card.created;
  out["owned_by"] = kOwner;
  out["status"] = view.serving() ? "ready" : "loading";
  out["context_length"] = card.context_tokens;
  return out;
}

HttpResponse status_response(uint32_t status, boost::json::object body) {
  HttpResponse response{.status = status, .body = to_json(body)};
  if (status == 503) response.headers.emplace_back("Retry-After", "2");
  return response;
}

// nullptr: ready.
const char* why_not_ready(const ClusterView& view) {
  if (view.draining) return "draining";
  if (view.engine.phase == EngineState::Phase::kLoading) return "loading";
  if (view.engine.phase == EngineState::Phase::kUnreachable) return "starting";
  if (view.queue.full) return "queue_full";
  return nullptr;
}

template <class T>
boost::json::object sourced(const SourcedValue<T>& value) {
  boost::json::object out;
  if constexpr (std::is_same_v<T, float>) {
    out["value"] = float_json(value.value);
  } else {
    out["value"] = value.value;
  }
  out["source"] = value.source;
  return out;
}

std::string html_escape(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace

HttpResponse models_response(const ModelCard& card, const ClusterView& view) {
  boost::json::array data;
  data.push_back(model_json(card, view));
  boost::json::object out;
  out["object"] = "list";
  out["data"] = std::move(data);
  return {.body = to_json(out)};
}

HttpResponse model_response(const ModelCard& card, const ClusterView& view, const std::string& id) {
  if (id != card.id) {
    return error_response(not_found(
        fmt::format("there is no model {}; this server has {}", snippet(to_valid_utf8(id)), snippet(card.id)),
        "model_not_found"));
  }
  return {.body = to_json(model_json(card, view))};
}

HttpResponse live_response() {
  boost::json::object out;
  out["status"] = "live";
  return {.body = to_json(out)};
}

HttpResponse health_response(const ClusterView& view) {
  boost::json::object out;
  if (view.serving()) {
    out["status"] = "ok";
    return status_response(200, std::move(out));
  }
  out["status"] = view.draining ? "draining" : "loading";
  out["progress"] = view.engine.progress;
  return status_response(503, std::move(out));
}

HttpResponse ready_response(const ClusterView& view) {
  boost::json::object out;
  if (const char* reason = why_not_ready(view)) {
    out["status"] = reason;
    if (view.engine.phase == EngineState::Phase::kLoading) out["progress"] = view.engine.progress;
    return status_response(503, std::move(out));
  }
  const auto& degraded = view.engine.info.degraded;
  out["status"] = degraded.empty() ? "ready" : "degraded";
  if (!degraded.empty()) out["degraded"] = boost::json::array(degraded.begin(), degraded.end());
  return status_response(200, std::move(out));
}

HttpResponse props_response(const ModelCard& card, const ClusterView& view) {
  boost::json::object sampling;
  sampling["temperature"] = sourced(card.fallbacks.temperature);
  sampling["top_p"] = sourced(card.fallbacks.top_p);
  sampling["top_k"] = sourced(card.fallbacks.top_k);
  sampling["min_p"] = sourced(card.fallbacks.min_p);
  boost::json::object thinking;
  thinking["template_variable"] = card.thinking_variable;
  thinking["default"] = card.thinking_default;
  boost::json::object budgets;
  for (const auto& [name, effort] : kEfforts) {
    const uint32_t tokens = card.thinking_budgets.of(effort);
    budgets[name] = tokens == kThinkingUnlimited ? boost::json::value(nullptr) : boost::json::value(tokens);
  }
  thinking["budget_tokens"] = std::move(budgets);
  boost::json::object settings, modalities;
  settings["n_ctx"] = card.context_tokens;
  settings["params"] = sampling_params(resolve_sampling({}, card.fallbacks, /*seed=*/0));
  settings["params"].get_object()["seed"] = -1;  // a random one for each request
  modalities["vision"] = false;
  modalities["audio"] = false;
  boost::json::object out;
  out["model"] = card.id;
  out["context_length"] = card.context_tokens;
  out["sequences"] = card.sequences;
  out["status"] = view.serving() ? "ready" : "loading";
  out["sampling_defaults"] = std::move(sampling);
  out["thinking"] = std::move(thinking);
  out["system_fingerprint"] = card.system_fingerprint;
  out["version"] = version();
  // What tools for llama.cpp look for.
  out["default_generation_settings"] = std::move(settings);
  out["total_slots"] = card.sequences;
  out["model_path"] = card.file_name;
  out["chat_template"] = card.chat_template;
  out["modalities"] = std::move(modalities);
  out["build_info"] = fmt::format("strata {} {}", version(), commit());
  return {.body = to_json(out)};
}

HttpResponse index_response(const ModelCard& card, const ClusterView& view, const std::string& address) {
  std::string body = fmt::format(
      R"(<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Strata</title>
<style>body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 42rem; margin: 3rem auto; padding: 0 1rem }}</style>
<h1>Strata</h1>
<p>A local inference server, version {version}. It serves the model <b>{model}</b> ({state}) over the OpenAI API at
<code>{address}/v1</code>; any API key will do.</p>
<pre>curl {address}/v1/chat/completions -H 'Content-Type: application/json' \
  -d '{{"messages":[{{"role":"user","content":"What is a violin?"}}]}}'</pre>
<ul>
<li><a href="/v1/models">/v1/models</a>: the model</li>
<li><a href="/props">/props</a>: context, sampling defaults</li>
<li><a href="/openapi.json">/openapi.json</a>: the API as an OpenAPI document</li>
<li><a href="/ready">/ready</a>, <a href="/health">/health</a>: state</li>
<li><a href="/metrics">/metrics</a>: figures for Prometheus</li>
</ul>
</html>
)",
      fmt::arg("version", version()), fmt::arg("model", html_escape(card.id)),
      fmt::arg("state", view.serving() ? "ready" : "loading"), fmt::arg("address", html_escape(address)));
  HttpResponse response{.content_type = "text/html; charset=utf-8", .body = std::move(body)};
  response.headers.emplace_back("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'");
  return response;
}

}  // namespace strata::gateway
