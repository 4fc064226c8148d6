# Every flag of the Emscripten builds. Included before any target exists, so
# that the instruction set holds for third-party objects, too: without
# -msimd128 Highway would silently run in scalar emulation.
include_guard(GLOBAL)

if(EMSCRIPTEN_VERSION VERSION_LESS 3.1.69)
  message(FATAL_ERROR
    "Emscripten is ${EMSCRIPTEN_VERSION}, wanted 3.1.69 or later; run "
    "`node cpp/toolchain/setup.mjs`, which finds or lays one")
endif()

add_compile_options(-msimd128)
if(HEADWISE_RELAXED_SIMD)
  add_compile_options(-mrelaxed-simd)
endif()

# The module of the package: headwise.mjs and headwise.wasm. The glue is the
# same file for every build; TypeScript picks the .wasm and hands it in through
# Module.instantiateWasm, so the glue has neither a fetch path that bundlers
# would follow nor anything of Node.
set(HEADWISE_WASM_MODULE_LINK_OPTIONS
  -O3
  # At the link, too: they choose the flavour of Embind's own library, which
  # names types differently without RTTI.
  -fno-exceptions
  -fno-rtti
  -lembind
  -sMODULARIZE
  -sEXPORT_ES6
  -sENVIRONMENT=web
  -sDYNAMIC_EXECUTION=0
  # Kernels stay functions of their own. Binaryen puts every function that has
  # one caller into that caller, up to the one that JavaScript calls; V8 keeps
  # its first, quick code of a function while that runs, and so a first call of
  # 4 heads at L = 4096 took 4.9 times as long as the second in Node 24.
  -sBINARYEN_EXTRA_PASSES=--one-caller-inline-max-function-size=400
  -sINCOMING_MODULE_JS_API=instantiateWasm
  # Views are made afresh after every call that may grow the memory.
  -sEXPORTED_RUNTIME_METHODS=HEAPU8,HEAP32,HEAPF32,HEAPF64
  -sALLOW_MEMORY_GROWTH
  -sINITIAL_MEMORY=2MB
  -sMAXIMUM_MEMORY=4GB
  # Scratch lives in the workspace; the stack holds frames and small tables.
  -sSTACK_SIZE=256KB
  -sFILESYSTEM=0
  -sASSERTIONS=0)
if(EMSCRIPTEN_VERSION VERSION_LESS 5)
  # Later versions have no such switch; portable-glue.cmake serves those.
  list(APPEND HEADWISE_WASM_MODULE_LINK_OPTIONS -sUSE_ES6_IMPORT_META=0)
endif()

# Programs that run under Node: tests and benchmarks.
set(HEADWISE_WASM_PROGRAM_LINK_OPTIONS
  # Binaryen's passes over a large test program take longer than they save.
  -O1
  -sENVIRONMENT=node
  -sNODERAWFS=1
  -sEXIT_RUNTIME=1
  -sALLOW_MEMORY_GROWTH
  -sINITIAL_MEMORY=32MB
  -sMAXIMUM_MEMORY=4GB
  -sSTACK_SIZE=4MB
  -sASSERTIONS=1)

# Modules without glue, for measurements: what they export is marked in their
# sources.
set(HEADWISE_WASM_BARE_LINK_OPTIONS
  -O3
  --no-entry
  -sSTANDALONE_WASM
  -sALLOW_MEMORY_GROWTH
  -sMAXIMUM_MEMORY=4GB)
