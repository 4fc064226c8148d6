# cmake -DGLUE=headwise.mjs -P portable-glue.cmake
# Takes import.meta.url out of the glue. It serves only to find the .wasm, which
# is handed in; but CommonJS has no import.meta, and bundlers would take
# new URL("headwise.wasm", import.meta.url) for a file to ship.
file(READ "${GLUE}" text)
string(REPLACE "import.meta.url" "void 0" text "${text}")
file(WRITE "${GLUE}" "${text}")
