#include "gpu-worker/answer_constraint.h"

#include <algorithm>
#include <utility>

#include "services/base/check.h"
#include "services/model/sampling.h"

namespace strata::gpu_worker {
namespace {

void set_bit(std::span<uint32_t> mask, int32_t token, bool value) {
  const auto id = static_cast<uint32_t>(token);
  const uint32_t bit = 1U << (id % 32);
  mask[id / 32] = value ? mask[id / 32] | bit : mask[id / 32] & ~bit;
}

bool has_bit(std::span<const uint32_t> mask, int32_t token) {
  const auto id = static_cast<uint32_t>(token);
  return (mask[id / 32] >> (id % 32) & 1U) != 0;
}

// All tokens of the vocabulary.
void set_all(std::span<uint32_t> mask, uint32_t vocab) {
  std::ranges::fill(mask, ~0U);
  if (vocab % 32 != 0) mask.back() = (1U << (vocab % 32)) - 1;
}

}  // namespace

AnswerConstraint::AnswerConstraint(const GenerationRequest& request,
                                   std::shared_ptr<const grammar::Grammar> grammar, uint32_t vocab)
    : thinking_begin_(request.constraint.thinking_begin),
      thinking_end_(request.constraint.thinking_end),
      thinking_tokens_max_(request.constraint.thinking_tokens_max),
      end_tokens_(request.end_tokens),
      stage_(thinking_end_ && !thinking_begin_ ? Stage::kThinking
             : grammar                         ? Stage::kGrammar
                                               : Stage::kFree),
      mask_(model::mask_words(vocab)) {
  if (grammar) matcher_.emplace(std::move(grammar));
  if (stage_ == Stage::kThinking && matcher_) {
    set_all(mask_, vocab);
    for (const int32_t token : end_tokens_) set_bit(mask_, token, false);
    for (const int32_t token : matcher_->grammar().vocabulary().end_of_generation())
      set_bit(mask_, token, false);
  }
}

Result<std::shared_ptr<AnswerConstraint>> AnswerConstraint::create(
    const GenerationRequest& request, std::shared_ptr<const grammar::Grammar> grammar, uint32_t vocab) {
  CHECK((grammar == nullptr) == request.constraint.gbnf.empty());
  CHECK(grammar == nullptr || grammar->vocabulary().size() <= vocab, "{} tokens, logits of {}",
        grammar->vocabulary().size(), vocab);
  std::shared_ptr<AnswerConstraint> made(new AnswerConstraint(request, std::move(grammar), vocab));
  if (made->stage_ == Stage::kGrammar) {
    const std::size_t first = request.prompt.size() - request.constraint.prompt_tokens;
    for (std::size_t i = first; i < request.prompt.size(); ++i) {
      if (!made->matcher_->accept(request.prompt[i]))
        return fail(Code::kInvalidArgument,
                    "constraint.prompt_tokens: prompt_tokens[{}] does not fit the grammar", i);
    }
  }
  for (std::size_t i = 0; i < request.generated.size(); ++i) {
    if (!made->read(request.generated[i]))
      return fail(Code::kInvalidArgument, "generated_tokens[{}] does not fit the grammar", i);
  }
  if (!made->update_mask()) {
    if (made->matcher_ && made->matcher_->gave_up())
      return fail(Code::kInvalidArgument, "constraint.gbnf: has too many readings to be followed");
    return fail(Code::kInvalidArgument, "constraint.gbnf: nothing can follow what the answer begins with");
  }
  return made;
}

bool AnswerConstraint::ends_with(int32_t token) const {
  return stage_ == Stage::kGrammar && matcher_->grammar().vocabulary().is_end_of_generation(token);
}

Status AnswerConstraint::accept(int32_t token) {
  unread_ = token;
  if (matcher_) matcher_->set_effort(grammar::Matcher::Effort::kQuick);
  Status status = go_on();
  if (status.ok() || stage_ != Stage::kGrammar || !matcher_->gave_up()) return status;
  ready_.store(false, std::memory_order_relaxed);  // whoever finishes it hears of it from us
  return {};
}

void AnswerConstraint::finish() {
  matcher_->set_effort(grammar::Matcher::Effort::kPatient);
  finished_ = go_on();
  ready_.store(true, std::memory_order_release);
}

void AnswerConstraint::give_up(Status why) {
  finished_ = std::move(why);
  ready_.store(true, std::memory_order_release);
}

Status AnswerConstraint::go_on() {
  if (unread_ && !read(*unread_))
    return fail(Code::kInternal,
                "token {} of the answer does not fit its grammar although it was allowed: the text has too "
                "many readings",
                read_);
  unread_.reset();
  if (!update_mask())
    return fail(Code::kInternal,
                "no token fits the grammar behind token {} of the answer: the text has too many readings",
                read_ - 1);
  return {};
}

bool AnswerConstraint::read(int32_t token) {
  if (stage_ == Stage::kGrammar && !matcher_->accept(token)) return false;
  ++read_;
  if (!thinks()) {
    own_thinking_ = token == thinking_begin_;
  } else if (token != thinking_end_) {
    ++thought_;
  } else if (own_thinking_) {
    own_thinking_ = false;
  } else {
    stage_ = matcher_ ? Stage::kGrammar : Stage::kFree;
  }
  return true;
}

bool AnswerConstraint::allow_only(int32_t token) {
  std::ranges::fill(mask_, 0);
  set_bit(mask_, token, true);
  return masked_ = true;
}

// False: no token may come.
bool AnswerConstraint::update_mask() {
  const bool thought_enough = thinks() && thinking_tokens_max_ && thought_ >= *thinking_tokens_max_;
  if (stage_ != Stage::kGrammar) {
    masked_ = stage_ == Stage::kThinking && matcher_.has_value();  // made in the beginning
    return thought_enough ? allow_only(*thinking_end_) : true;
  }
  masked_ = true;
  // The logits may be of more tokens than the tokenizer has.
  const std::size_t words = matcher_->grammar().vocabulary().mask_words();
  if (!matcher_->fill_mask(std::span(mask_).first(words))) return false;
  std::ranges::fill(std::span(mask_).subspan(words), 0);
  if (matcher_->is_complete()) {
    for (const int32_t token : end_tokens_) set_bit(mask_, token, true);
  }
  // A grammar that knows of no such thinking goes first: nobody could go on from what it does not allow.
  if (thought_enough && has_bit(mask_, *thinking_end_)) return allow_only(*thinking_end_);
  return std::ranges::any_of(mask_, [](uint32_t word) { return word != 0; });
}

}  // namespace strata::gpu_worker
