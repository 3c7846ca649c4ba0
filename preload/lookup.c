/* SPDX-License-Identifier: MIT */
/*
 * Built without sanitizers: their runtimes call dlsym() before they are ready for code that is
 * instrumented. For the same reason nothing here calls the C library before it is known that
 * the name is one of verbs or rdma_cm.
 */
#include "lookup.h"

#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

snt__dlsym *snt__preload_next_dlsym;
snt__dlvsym *snt__preload_next_dlvsym;

static const struct link_map *own_map;

/*
 * Symbols of one loaded library, without asking the C library, whose dlsym() is what is
 * searched for
 */

/* An address in the dynamic section. The loader has relocated it in most libraries, and not
 * in those that it may not write to. */
static const void *find_dynamic(const struct link_map *map, ElfW(Sxword) tag)
{
	for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
		ElfW(Addr) address = entry->d_un.d_ptr;

		if (entry->d_tag == tag)
			return (const void *)(address < map->l_addr
						      ? address + map->l_addr
						      : address);
	}
	return NULL;
}

static bool is_same(const char *a, const char *b)
{
	while (*a && *a == *b) {
		a++;
		b++;
	}
	return *a == *b;
}

static uint32_t gnu_hash(const char *name)
{
	uint32_t hash = 5381;

	for (; *name; name++)
		hash = hash * 33 + (unsigned char)*name;
	return hash;
}

/* The format of DT_GNU_HASH: a header, a Bloom filter, buckets with the first symbol of each
 * chain, and chains of hashes whose lowest bit marks the last one. */
struct gnu_table {
	uint32_t bucket_count, first_symbol, filter_words, filter_shift;
	ElfW(Addr) filter[];
};

/* Symbols of an older version are marked, and are not those that programs are linked with. */
#define VERSION_HIDDEN 0x8000

static bool is_default_version(const struct link_map *map, uint32_t symbol)
{
	const ElfW(Half) *versions = find_dynamic(map, DT_VERSYM);

	return !versions || !(versions[symbol] & VERSION_HIDDEN);
}

static void *find_symbol(const struct link_map *map, const char *name)
{
	const struct gnu_table *table = find_dynamic(map, DT_GNU_HASH);
	const ElfW(Sym) *symbols = find_dynamic(map, DT_SYMTAB);
	const char *names = find_dynamic(map, DT_STRTAB);
	const uint32_t *buckets, *chains;
	uint32_t hash = gnu_hash(name), i;

	if (!table || !symbols || !names || !table->bucket_count)
		return NULL;
	buckets = (const uint32_t *)&table->filter[table->filter_words];
	chains = buckets + table->bucket_count;
	i = buckets[hash % table->bucket_count];
	if (i < table->first_symbol)
		return NULL;
	for (;; i++) {
		uint32_t found = chains[i - table->first_symbol];

		if ((found | 1) == (hash | 1) && symbols[i].st_shndx != SHN_UNDEF &&
		    is_same(names + symbols[i].st_name, name) &&
		    is_default_version(map, i))
			return (void *)(map->l_addr + symbols[i].st_value);
		if (found & 1)
			return NULL;
	}
}

/*
 * The next dlsym() and dlvsym()
 */

/* In the libraries after this one; if it was loaded later than the C library, in those before. */
static void *find_next_library_symbol(const char *name)
{
	void *symbol = NULL;

	for (const struct link_map *map = own_map->l_next; map && !symbol;
	     map = map->l_next)
		symbol = find_symbol(map, name);
	for (const struct link_map *map = own_map->l_prev; map && !symbol;
	     map = map->l_prev)
		symbol = find_symbol(map, name);
	return symbol;
}

/* The first lookup of a process is that of files.c, when this library is loaded, or an earlier
 * one: no other thread is loading or unloading libraries yet. ISO C has no conversion from an
 * object's address to a function pointer. */
static void find_both(void)
{
	Dl_info info;
	void *symbol;

	if (own_map)
		return;
	dladdr1(&own_map, &info, (void **)&own_map, RTLD_DL_LINKMAP);
	symbol = find_next_library_symbol("dlsym");
	memcpy(&snt__preload_next_dlsym, &symbol, sizeof(symbol));
	symbol = find_next_library_symbol("dlvsym");
	memcpy(&snt__preload_next_dlvsym, &symbol, sizeof(symbol));
}

void *snt__preload_real_symbol(void *library, const char *name)
{
	find_both();
	return snt__preload_next_dlsym(library, name);
}

/*
 * Which symbols are replaced
 */

static bool begins_with(const char *text, const char *word)
{
	while (*word && *text == *word) {
		text++;
		word++;
	}
	return !*word;
}

static bool may_be_ours(const char *name)
{
	return begins_with(name, "ibv_") || begins_with(name, "_ibv_") ||
	       begins_with(name, "rdma_");
}

/* Is it "name.so...", or "name-HASH.so...", as portable packages rename what they bring along? */
static bool is_library(const char *file, const char *name)
{
	if (!begins_with(file, name))
		return false;
	file += strlen(name);
	return *file == '-' || begins_with(file, ".so");
}

/* A program may well have functions of such names in libraries of its own. And functions of
 * IBVERBS_1.0 have other structures than those of this library. */
static bool is_default_of_rdma_core(void *symbol, const char *name)
{
	struct link_map *map;
	const char *library;
	Dl_info info;

	if (!dladdr1(symbol, &info, (void **)&map, RTLD_DL_LINKMAP) || !info.dli_fname)
		return false;
	library = strrchr(info.dli_fname, '/');
	library = library ? library + 1 : info.dli_fname;
	return (is_library(library, "libibverbs") ||
		is_library(library, "librdmacm")) &&
	       find_symbol(map, name) == symbol;
}

void *snt__preload_lookup(void *handle, const char *name, const char *version)
{
	void *ours, *real = NULL;

	find_both();
	if (handle == RTLD_NEXT || !name || !may_be_ours(name))
		return NULL;
	ours = find_symbol(own_map, name);
	if (ours && version)
		real = snt__preload_next_dlvsym(handle, name, version);
	else if (ours)
		real = snt__preload_next_dlsym(handle, name);
	return real && is_default_of_rdma_core(real, name) ? ours : NULL;
}
