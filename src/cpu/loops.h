// Plain loops compiled for several instruction sets; the machine's best is chosen when the program
// starts. For loops that the compiler vectorises by itself.
#pragma once

// A sanitizer instruments the choosing functions, too, which run before it is ready.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define TK_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define TK_CLONES
#endif
