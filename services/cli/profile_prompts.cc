#include "services/cli/profile_prompts.h"

#include <sstream>

namespace strata::cli {

std::vector<std::string> built_in_prompts() {
  return {
      // Words
      "What is a violin?",
      "Define the word \"harvest\".",
      "What does \"reluctant\" mean?",
      "Is a whale a fish or a mammal?",
      "Give me a synonym of \"quick\" and use it in a sentence.",
      "What is the opposite of \"generous\"?",
      // Talk
      "Hello! How are you today?",
      "My name is Anna and I live in Lisbon. What is my name?",
      "Name three things to pack for a trip.",
      "How do I boil an egg?",
      "Give me a list of five fruits.",
      "What is the capital of France?",
      "Why is the sky blue?",
      // Code
      "Write a Python function that reverses a string.",
      "Write a Python function that returns the sum of a list.",
      "What does this do: for i in range(10): print(i * i)",
      "Write a Python class for a bank account with deposit and withdraw.",
      "def fibonacci(n):",
      "How do I open a file in Python and read its lines?",
      // Numbers
      "What is 37 + 45?",
      "What is 12 times 9?",
      "A train travels 120 km in 2 hours. How fast is it?",
      "How many centimetres are in 3 metres?",
      "What comes next: 2, 4, 8, 16?",
      "I have 15 apples and give away 6. How many are left?",
      // Data and tools
      "Return a JSON object with the keys name and age for Tom, who is 31.",
      "Turn this into JSON: city Rome, country Italy.",
      "Which tool would you call to get the weather in Paris, and with which arguments?",
      "{\"items\": [1, 2, 3], \"total\": 6} - what is the total?",
      // Stories
      "Tell me a short story about a fox and a lantern.",
      "Once upon a time there was a girl who found a key.",
      "Write a rhyme about the rain.",
      "Tell me a story about two brothers and a boat.",
      // Scripture
      "In the beginning God created",
      "Who built the ark?",
      "The LORD is my shepherd;",
      // Documentation
      "What does the SQL SELECT statement do?",
      "How do I create an index in PostgreSQL?",
      "Explain Python's len() function.",
      "What is a primary key in SQLite?",
  };
}

std::vector<std::string> read_prompts(const std::string& text) {
  std::vector<std::string> prompts;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty() && line[0] != '#') prompts.push_back(line);
  }
  return prompts;
}

}  // namespace strata::cli
