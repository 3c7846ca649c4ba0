/* SPDX-License-Identifier: MIT */
#ifndef SNT_PRELOAD_LOOKUP_H
#define SNT_PRELOAD_LOOKUP_H

/*
 * dlsym() and dlvsym(), for programs that load libibverbs or librdmacm themselves and look
 * functions up on its handle: those find this library's functions instead of the real ones.
 * Whatever else is looked up goes to the C library, as if this library were not there:
 * RTLD_NEXT depends on the caller, so dlsym.S leaves by a jump, which keeps the return address.
 */

typedef void *snt__dlsym(void *handle, const char *name);
typedef void *snt__dlvsym(void *handle, const char *name, const char *version);

/* The C library's, or those of another library that follows this one. Set by the first
 * snt__preload_lookup() or snt__preload_real_symbol(). */
extern snt__dlsym *snt__preload_next_dlsym;
extern snt__dlvsym *snt__preload_next_dlvsym;

/* The function of this library that stands for a symbol of a handle, version NULL: the
 * default one. NULL: there is none, and the next library is to be asked. */
void *snt__preload_lookup(void *handle, const char *name, const char *version);

/* A symbol of a library, which is never replaced by one of this library. */
void *snt__preload_real_symbol(void *library, const char *name);

#endif
