// SPDX-License-Identifier: Apache-2.0
/* When the library loads its solver of linear programs. usage: solver GRAPH.json */
#include <stash/c_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, stash_last_error_message());
  exit(1);
}

static int is_loaded(const char* name) {
  char line[4096];
  int found = 0;
  FILE* maps = fopen("/proc/self/maps", "r");
  if (maps == NULL) return 0;
  while (fgets(line, sizeof(line), maps) != NULL)
    found = found || strstr(line, name) != NULL;
  fclose(maps);
  return found;
}

static const char* solver_state(void) {
  return is_loaded("libClp") || is_loaded("libhighs") ? "solver" : "no solver";
}

int main(int count, char** arguments) {
  static char graph[1 << 22];
  FILE* file = count == 2 ? fopen(arguments[1], "r") : NULL;
  char* plan = NULL;
  stash_plan_options options = STASH_INIT(stash_plan_options);
  if (file == NULL || fread(graph, 1, sizeof(graph) - 1, file) == 0) fail("file");
  fclose(file);
  if (stash_plan(graph, &options, &plan) != STASH_OK) fail("lossless");
  stash_free_text(plan);
  printf("lossless: %s\n", solver_state());
  options.policy = "fp8";
  options.model = "a100";
  if (stash_plan(graph, &options, &plan) != STASH_OK) fail("for speed");
  printf("for speed: %s, %s\n", solver_state(),
         strstr(plan, "\"relaxed\":true") != NULL ? "relaxed" : "not relaxed");
  stash_free_text(plan);
  return 0;
}
