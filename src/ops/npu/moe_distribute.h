// Limits that dispatch and combine share. `op` is the prefix of the check ids; the operator has
// the symbols BS, H, K and local_experts.
#pragma once

#define TK_DISTRIBUTE_LIMITS(op)                                                                  \
  {op ".experts24", "moe_expert_num // (ep_world_size - shared_expert_rank_num) <= 24",           \
   "stated of the first version; the newest text of the second dropped it", "a2"},                \
      {op ".divisible", "moe_expert_num % (ep_world_size - shared_expert_rank_num) == 0"},        \
      {op ".experts", "1 <= moe_expert_num <= 1024"}, {op ".K", "0 < K <= 16"},                   \
      {op ".ep_a2",                                                                               \
       "ep_world_size in (16, 32, 64) if comm_alg == \"hierarchy\" else ep_world_size in (2, 3, " \
       "4, 5, 6, 7, 8, 16, 32, 64, 128, 256)",                                                    \
       "", "a2"},                                                                                 \
      {op ".ep_a3", "2 <= ep_world_size <= 768", "", "a3"},                                       \
      {op ".bs_a2", "0 < BS <= (512 if comm_alg == \"hierarchy\" else 256)", "", "a2"},           \
      {op ".bs_a3", "0 < BS <= (256 if comm_alg in (\"fullmesh_v2\", \"hierarchy\") else 512)",   \
       "", "a3"},                                                                                 \
      {op ".K_fm2", "comm_alg != \"fullmesh_v2\" or K <= 12", "", "a3"},                          \
      {op ".H_a2", "0 < H <= (10240 if comm_alg == \"hierarchy\" else 7168) and H % 32 == 0", "", \
       "a2"},                                                                                     \
      {op ".H_a3", "1024 <= H <= 8192", "", "a3"},                                                \
      {op ".local_a3", "0 < local_experts * ep_world_size <= 2048", "", "a3"},                    \
      {op ".tp", "tp_world_size in (0, 1)"}
