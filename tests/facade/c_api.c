/* A program in C that opens the library by itself, as programs of others do: prefill and decode over one set of caches.
 * argv: the library, prefill, decode, how many tokens prefill takes. Writes the outputs of both, float32, to stdout. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tcim/tcim_c_api.h>

#define EXPECT(x)                                   \
  if (!(x)) {                                       \
    fprintf(stderr, "line %d: %s\n", __LINE__, #x); \
    exit(1);                                        \
  }

static tcim_api_table_t api;

/* Through void**, because C has no conversion of objects to functions. */
#define LOOK_UP(result, name, parameters) EXPECT((*(void**)& api.name = dlsym(library, #name "_impl")) != NULL)

static void open_library(const char* path) {
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) fprintf(stderr, "%s\n", dlerror());
  EXPECT(library != NULL);
  TCIM_C_API_CALLS(LOOK_UP)
}

static tcim_module_t load(const char* path, tcim_weight_manager_t weights, const char** dummies, size_t num) {
  tcim_module_option_t option = api.tcim_module_option_create(weights);
  tcim_module_t module = api.tcim_module_create();
  api.tcim_module_option_set_dummy_tensors(option, dummies, num);
  api.tcim_module_option_enable_lazy_mode(option, true);
  EXPECT(api.tcim_module_load_model_file(module, path, option) == TCIM_OK);
  api.tcim_module_option_destroy(option);
  return module;
}

/* Rows that the test in Python makes as well, through float32. */
static void set_rows(tcim_module_t module, int seed) {
  const char* name = api.tcim_module_get_input_name(module, 0);
  tcim_tensor_info_t info = api.tcim_module_get_input_info(module, name);
  tcim_tensor_info_t dense = api.tcim_tensor_info_as_contiguous(info);
  tcim_tensor_info_t floats = api.tcim_tensor_info_as_type(dense, TCIM_FLOAT32);
  tcim_tensor_t tensor = api.tcim_tensor_create_host(floats, 0, NULL);
  size_t count = 1;
  for (size_t i = 0; i < api.tcim_tensor_info_get_shape_num(info); ++i) {
    count *= (size_t)api.tcim_tensor_info_get_shape_dim(info, i);
  }
  EXPECT(api.tcim_tensor_info_get_data_type(info) == TCIM_FLOAT16);
  EXPECT(api.tcim_tensor_get_data_type(tensor) == TCIM_FLOAT32);
  EXPECT(api.tcim_tensor_get_mem_size(tensor) == 4 * count && api.tcim_tensor_info_get_mem_size(info) == 2 * count);
  float* rows = api.tcim_tensor_get_data(tensor);
  for (size_t i = 0; i < count; ++i) rows[i] = (float)((int)(i * 7 + (size_t)seed) % 13 - 6) / 8;
  EXPECT(api.tcim_module_set_input(module, name, tensor) == TCIM_OK);
  api.tcim_tensor_destroy(tensor);
  api.tcim_tensor_info_destroy(floats);
  api.tcim_tensor_info_destroy(dense);
  api.tcim_tensor_info_destroy(info);
}

static void set_length(tcim_module_t module, const char* name, int32_t length, bool by_buffer) {
  tcim_tensor_info_t info = api.tcim_module_get_input_info(module, name);
  tcim_tensor_t tensor = api.tcim_tensor_create_host(info, 0, NULL);
  if (by_buffer) {
    tcim_buffer_t buffer = api.tcim_tensor_get_buffer(tensor);
    EXPECT(api.tcim_buffer_copy_from_host(buffer, &length, sizeof(length), 0) == TCIM_OK);
    api.tcim_buffer_destroy(buffer);
  } else {
    EXPECT(api.tcim_tensor_copy_from_host(tensor, &length, sizeof(length), 0) == TCIM_OK);
  }
  EXPECT(api.tcim_module_set_input(module, name, tensor) == TCIM_OK);
  api.tcim_tensor_destroy(tensor);
  api.tcim_tensor_info_destroy(info);
}

/* Twice: into a float32 tensor of the caller's memory, and as a copy that is cast. */
static void write_output(tcim_module_t module) {
  EXPECT(api.tcim_module_get_output_num(module) == 1);
  const char* name = api.tcim_module_get_output_name(module, 0);
  tcim_tensor_info_t info = api.tcim_module_get_output_info(module, name);
  tcim_tensor_info_t floats = api.tcim_tensor_info_as_type(info, TCIM_FLOAT32);
  const size_t bytes = api.tcim_tensor_info_get_mem_size(floats);
  void* memory = malloc(bytes);
  tcim_tensor_t given = api.tcim_tensor_create_host(floats, bytes, memory);
  EXPECT(api.tcim_module_get_output_into(module, name, given) == TCIM_OK);
  tcim_tensor_t fresh = api.tcim_module_get_output(module, name);
  tcim_tensor_t cast = api.tcim_tensor_create_host(floats, 0, NULL);
  EXPECT(api.tcim_tensor_cast_to(fresh, cast) == TCIM_OK);
  tcim_tensor_t copy = api.tcim_tensor_clone(cast);
  EXPECT(memcmp(memory, api.tcim_tensor_get_data(copy), bytes) == 0);
  fwrite(memory, 1, bytes, stdout);
  api.tcim_tensor_destroy(copy);
  api.tcim_tensor_destroy(cast);
  api.tcim_tensor_destroy(fresh);
  api.tcim_tensor_destroy(given);
  free(memory);
  api.tcim_tensor_info_destroy(floats);
  api.tcim_tensor_info_destroy(info);
}

static void step(tcim_module_t module, int seed, int32_t valid, int32_t current) {
  set_rows(module, seed);
  set_length(module, "valid_length", valid, true);
  set_length(module, "current_length", current, false);
  EXPECT(api.tcim_module_run(module) == TCIM_OK && api.tcim_module_sync(module) == TCIM_OK);
  write_output(module);
}

int main(int argc, char** argv) {
  EXPECT(argc == 5);
  open_library(argv[1]);
  const int32_t tokens = (int32_t)atoi(argv[4]);
  const int device = 0;
  tcim_dev_manager_t devices = api.tcim_dev_manager_create(&device, 1, "Xh2HalBackend");
  tcim_weight_manager_t weights = api.tcim_weight_manager_create(devices);
  api.tcim_dev_manager_destroy(devices);
  tcim_module_t prefill = load(argv[2], weights, NULL, 0);
  const char* caches[16];
  size_t num = 0;
  for (size_t i = 0; i < api.tcim_module_get_input_num(prefill); ++i) {
    const char* name = api.tcim_module_get_input_name(prefill, (int)i);
    if (strstr(name, "cache") != NULL) caches[num++] = name;
  }
  EXPECT(num > 0 && num < 16);
  tcim_module_t decode = load(argv[3], weights, caches, num);
  api.tcim_weight_manager_destroy(weights);
  for (size_t i = 0; i < num; ++i) {
    tcim_tensor_t cache = api.tcim_module_get_dev_input(prefill, caches[i]);
    EXPECT(api.tcim_module_set_input(decode, caches[i], cache) == TCIM_OK);
    api.tcim_tensor_destroy(cache);
  }
  step(prefill, 3, 0, tokens);
  api.tcim_module_destroy(prefill); /* decode keeps the caches */
  step(decode, 5, tokens, 1);
  api.tcim_module_destroy(decode);
  return 0;
}
