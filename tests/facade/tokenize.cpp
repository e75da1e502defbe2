// Token ids of the texts on standard input, each ended by a NUL; one line per text.
#include <iostream>
#include <iterator>

#include "tokenizer.h"

int main(int, char** argv) {
  const Tokenizer tokenizer(argv[1]);
  for (std::string text; std::getline(std::cin, text, '\0');) {
    for (const int token : tokenizer.Encode(text)) std::cout << token << " ";
    std::cout << "\n";
  }
}
