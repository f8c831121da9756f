/* flex_symbols.h - symbols of what is compiled for each instruction set, FLEX_ISA: flex_, the function, the instruction
 * set, so that profilers, debuggers and readers can tell them apart. */
#define FLEX_PASTE_3(kind, x, isa) kind##_##x##_##isa
#define FLEX_PASTE(kind, x, isa) FLEX_PASTE_3(kind, x, isa)
#define FLEX_ROW FLEX_PASTE(fl, flex, FLEX_ISA)
#define FLEX_STORES FLEX_PASTE(fl, flex_stores, FLEX_ISA)
