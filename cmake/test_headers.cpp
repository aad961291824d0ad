// SPDX-License-Identifier: Apache-2.0
// A program needs a source. This one is there for the headers that it precompiles.
int main() {
  return 0;
}
