#include "services/simulation/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>

#include "services/plot/line_chart.h"

namespace strata::simulation {
namespace {

namespace json = boost::json;

constexpr double kMegabyte = 1e6;

// Six decimals are more than a replay can mean, and print as they are.
json::value rounded(double value) { return std::round(value * 1e6) / 1e6; }

std::string heading(const Row& row) {
  std::string out =
      fmt::format("\n{} slots ({}): oracle {:.3f}, Belady {:.3f}, foresight {:.3f}\n", row.budget.slots,
                  row.budget.text, row.oracle(), row.belady(), row.foresight());
  return out + fmt::format("  {:<12} {:>8} {:>9} {:>7} {:>7} {:>7} {:>12} {:>10}\n", "policy", "hit rate",
                           "of oracle", "least", "regret", "prefill", "exchg/window", "MB copied");
}

std::string table_line(const Row& row) {
  const ReplayResult total = row.total();
  return fmt::format("  {:<12} {:>8.3f} {:>9.3f} {:>7.3f} {:>7.3f} {:>7.3f} {:>12.2f} {:>10.1f}\n",
                     row.policy, row.hit_rate(), row.hit_rate() / row.oracle(), row.least_of_oracle(),
                     row.belady() - row.hit_rate(), row.prefill_hit_rate(),
                     static_cast<double>(total.exchanges) / static_cast<double>(total.windows),
                     static_cast<double>(total.bytes) / kMegabyte);
}

std::string conversations_of(const Row& row) {
  std::string out;
  for (const ConversationRow& each : row.conversations) {
    const double rate = each.result.decode_rate();
    out += fmt::format("    {:<20} {:.3f}  of oracle {:.3f} ({:.3f})  Belady {:.3f}  exchanges {}\n",
                       each.name, rate, rate / each.oracle, each.oracle, each.belady, each.result.exchanges);
  }
  return out;
}

void add_result(json::object& object, const ReplayResult& result) {
  object["windows"] = result.windows;
  object["exchanges"] = result.exchanges;
  object["bytes"] = result.bytes;
}

json::object conversation_json(const ConversationRow& row) {
  json::object object{{"name", row.name},
                      {"hit_rate", rounded(row.result.decode_rate())},
                      {"prefill_hit_rate", rounded(row.result.prefill_rate())},
                      {"oracle_hit_rate", rounded(row.oracle)},
                      {"belady_hit_rate", rounded(row.belady)},
                      {"foresight_hit_rate", rounded(row.foresight)},
                      {"regret", rounded(row.belady - row.result.decode_rate())},
                      {"decode_hits", row.result.decode_hits},
                      {"decode_uses", row.result.decode_uses}};
  add_result(object, row.result);
  return object;
}

json::object row_json(const Row& row) {
  json::object object{{"policy", row.policy},
                      {"budget", row.budget.text},
                      {"slots", row.budget.slots},
                      {"hit_rate", rounded(row.hit_rate())},
                      {"prefill_hit_rate", rounded(row.prefill_hit_rate())},
                      {"oracle_hit_rate", rounded(row.oracle())},
                      {"belady_hit_rate", rounded(row.belady())},
                      {"foresight_hit_rate", rounded(row.foresight())},
                      {"least_of_oracle", rounded(row.least_of_oracle())},
                      {"regret", rounded(row.belady() - row.hit_rate())}};
  add_result(object, row.total());
  json::array conversations;
  for (const ConversationRow& each : row.conversations) conversations.push_back(conversation_json(each));
  object["conversations"] = std::move(conversations);
  return object;
}

}  // namespace

std::string report_text(std::span<const Row> rows, bool each_conversation) {
  std::string out;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i == 0 || rows[i].budget.text != rows[i - 1].budget.text) out += heading(rows[i]);
    out += table_line(rows[i]);
    if (each_conversation) out += conversations_of(rows[i]);
  }
  return out;
}

std::string report_json(std::span<const Row> rows) {
  json::array out;
  for (const Row& row : rows) out.push_back(row_json(row));
  return json::serialize(out) + "\n";
}

std::string report_svg(std::span<const Row> rows, uint64_t experts, const std::string& title) {
  plot::LineChart chart{.title = title,
                        .x_label = "experts with a slot",
                        .y_label = "hit rate of generated tokens",
                        .x_max = 0,
                        .curves = {}};
  const auto curve = [&](const std::string& name, bool dashed) -> plot::Curve& {
    const auto found = std::ranges::find(chart.curves, name, &plot::Curve::name);
    if (found != chart.curves.end()) return *found;
    return chart.curves.emplace_back(plot::Curve{.name = name, .points = {}, .dashed = dashed});
  };
  std::string budget;
  for (const Row& row : rows) {
    const double share = static_cast<double>(row.budget.slots) / static_cast<double>(experts);
    chart.x_max = std::max(chart.x_max, std::ceil(share * 10) / 10);
    curve(row.policy, false).points.push_back({share, row.hit_rate()});
    if (std::exchange(budget, row.budget.text) == row.budget.text) continue;
    curve("oracle (fixed)", true).points.push_back({share, row.oracle()});
    curve("foresight", true).points.push_back({share, row.foresight()});
    curve("Belady, unlimited", true).points.push_back({share, row.belady()});
  }
  for (plot::Curve& each : chart.curves) std::ranges::sort(each.points, {}, &plot::Point::x);
  return plot::line_chart_svg(chart);
}

}  // namespace strata::simulation
