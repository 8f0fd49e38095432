#include "parallel/launch/pmix_server.h"

#include <dlfcn.h>
#include <pmix_server.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "parallel/launch/network.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

#define RANKWISE_PMIX_CALLS(CALL)   \
  CALL(PMIx_server_init)            \
  CALL(PMIx_server_register_nspace) \
  CALL(PMIx_server_register_client) \
  CALL(PMIx_server_setup_fork)      \
  CALL(PMIx_generate_regex)         \
  CALL(PMIx_generate_ppn)           \
  CALL(PMIx_Info_load)

struct PmixApi {
#define RANKWISE_PMIX_MEMBER(name) decltype(&::name) name = nullptr;
  RANKWISE_PMIX_CALLS(RANKWISE_PMIX_MEMBER)
#undef RANKWISE_PMIX_MEMBER
};

absl::Status StatusOf(pmix_status_t result, const char* call) {
  if (result == PMIX_SUCCESS || result == PMIX_OPERATION_SUCCEEDED) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(
      absl::StrCat("libpmix: ", call, " failed with ", result));
}

absl::StatusOr<PmixApi> Load() {
  void* const library = dlopen("libpmix.so.2", RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    return absl::NotFoundError(absl::StrCat(
        "--backend=mpi with --nproc needs libpmix, which cannot be loaded (",
        dlerror(), "); install it: apt-get install openmpi-bin"));
  }
  PmixApi pmix;
  const char* missing = nullptr;
  const auto find = [&](auto& pointer, const char* symbol) {
    void* const found = dlsym(library, symbol);
    if (found == nullptr) missing = symbol;
    pointer = reinterpret_cast<std::decay_t<decltype(pointer)>>(found);
  };
#define RANKWISE_PMIX_FIND(name) find(pmix.name, #name);
  RANKWISE_PMIX_CALLS(RANKWISE_PMIX_FIND)
#undef RANKWISE_PMIX_FIND
  if (missing == nullptr) return pmix;
  return absl::NotFoundError(
      absl::StrCat("libpmix.so.2 has no ", missing, "; install OpenMPI 4.1"));
}

// Connecting and leaving ranks need no action: the launcher monitors their
// processes.
pmix_status_t Accept(const pmix_proc_t*, void*, pmix_op_cbfunc_t, void*) {
  return PMIX_OPERATION_SUCCEEDED;
}

// All ranks are local, so the data collected from them is complete.
pmix_status_t Fence(const pmix_proc_t*, size_t, const pmix_info_t*, size_t,
                    char* data, size_t size, pmix_modex_cbfunc_t done,
                    void* context) {
  done(PMIX_SUCCESS, data, size, context, nullptr, nullptr);
  return PMIX_SUCCESS;
}

// Loaded and started once, and never freed: libpmix's thread may use it.
absl::StatusOr<const PmixApi*> Server() {
  static const auto& server =
      *new absl::StatusOr<PmixApi>([]() -> absl::StatusOr<PmixApi> {
        ASSIGN_OR_RETURN(const PmixApi pmix, Load());
        // In memory, without files that a killed launcher would leave behind.
        setenv("PMIX_MCA_gds", "hash", /*replace=*/0);
        static pmix_server_module_t& callbacks = *new pmix_server_module_t{};
        callbacks.client_connected = Accept;
        callbacks.client_finalized = Accept;
        callbacks.fence_nb = Fence;
        RETURN_IF_ERROR(StatusOf(pmix.PMIx_server_init(&callbacks, nullptr, 0),
                                 "PMIx_server_init"));
        return pmix;
      }());
  RETURN_IF_ERROR(server.status());
  return &*server;
}

// Attributes of a job or a rank for PMIx.
class Facts {
 public:
  explicit Facts(const PmixApi& pmix) : pmix_(pmix) {}

  void Add(const char* key, const void* value, pmix_data_type_t type) {
    pmix_info_t& info = infos_.emplace_back();
    std::memset(&info, 0, sizeof(info));
    pmix_.PMIx_Info_load(&info, key, value, type);
  }
  void Add(const char* key, const std::string& text) {
    Add(key, text.c_str(), PMIX_STRING);
  }
  void Add(const char* key, uint32_t number) { Add(key, &number, PMIX_UINT32); }

  pmix_info_t* data() { return infos_.data(); }
  size_t size() const { return infos_.size(); }

 private:
  const PmixApi& pmix_;
  std::vector<pmix_info_t> infos_;
};

Facts FactsOfRank(const PmixApi& pmix, int rank) {
  Facts facts(pmix);
  const pmix_rank_t number = static_cast<pmix_rank_t>(rank);
  const auto place = static_cast<uint16_t>(rank);
  facts.Add(PMIX_RANK, &number, PMIX_PROC_RANK);
  facts.Add(PMIX_LOCAL_RANK, &place, PMIX_UINT16);
  facts.Add(PMIX_NODE_RANK, &place, PMIX_UINT16);
  facts.Add(PMIX_APPNUM, 0);
  return facts;
}

// The attributes read by OpenMPI's MPI_Init (orte/mca/ess/pmi).
Facts FactsOfJob(const PmixApi& pmix, int ranks) {
  std::vector<int> numbers;
  for (int rank = 0; rank < ranks; ++rank) numbers.push_back(rank);
  const std::string peers = absl::StrJoin(numbers, ",");
  char *nodes = nullptr, *processes = nullptr;
  pmix.PMIx_generate_regex(HostName().c_str(), &nodes);
  pmix.PMIx_generate_ppn(peers.c_str(), &processes);
  Facts facts(pmix);
  const auto size = static_cast<uint32_t>(ranks);
  for (const char* key :
       {PMIX_UNIV_SIZE, PMIX_MAX_PROCS, PMIX_JOB_SIZE, PMIX_LOCAL_SIZE}) {
    facts.Add(key, size);
  }
  facts.Add(PMIX_LOCAL_PEERS, peers);
  facts.Add(PMIX_NODE_MAP, std::string(nodes));
  facts.Add(PMIX_PROC_MAP, std::string(processes));
  std::free(nodes);
  std::free(processes);
  for (int rank = 0; rank < ranks; ++rank) {
    Facts of_rank = FactsOfRank(pmix, rank);
    const pmix_data_array_t array = {PMIX_INFO, of_rank.size(), of_rank.data()};
    facts.Add(PMIX_PROC_DATA, &array, PMIX_DATA_ARRAY);
  }
  return facts;
}

// Blocks until the libpmix operation started by `start` has completed. `start`
// receives a completion callback and its argument.
template <typename Start>
absl::Status Await(const char* call, Start start) {
  std::promise<pmix_status_t> done;
  const pmix_op_cbfunc_t tell = [](pmix_status_t result, void* promise) {
    static_cast<std::promise<pmix_status_t>*>(promise)->set_value(result);
  };
  pmix_status_t result = start(tell, &done);
  if (result == PMIX_SUCCESS) result = done.get_future().get();
  return StatusOf(result, call);
}

// Created once, for memory that ranks map and for OpenMPI's files. Removed at
// exit.
const std::string& Folder() {
  static const std::string& folder = *[] {
    char path[] = "/dev/shm/rankwise.XXXXXX";
    const char* const made = mkdtemp(path);
    std::atexit([] {
      std::error_code ignored;
      if (!Folder().empty()) std::filesystem::remove_all(Folder(), ignored);
    });
    return new std::string(made == nullptr ? "" : made);
  }();
  return folder;
}

absl::StatusOr<std::vector<std::string>> AddRank(const PmixApi& pmix,
                                                 const std::string& job,
                                                 int rank) {
  pmix_proc_t process = {};
  std::strncpy(process.nspace, job.c_str(), PMIX_MAX_NSLEN);
  process.rank = static_cast<pmix_rank_t>(rank);
  RETURN_IF_ERROR(
      Await("PMIx_server_register_client", [&](auto tell, void* promise) {
        return pmix.PMIx_server_register_client(&process, getuid(), getgid(),
                                                nullptr, tell, promise);
      }));
  char** entries = nullptr;
  RETURN_IF_ERROR(StatusOf(pmix.PMIx_server_setup_fork(&process, &entries),
                           "PMIx_server_setup_fork"));
  // OpenMPI treats ranks not started by mpirun as jobs of one rank each, unless
  // only this component, which reads PMIX_*, decides.
  std::vector<std::string> environment = {"OMPI_MCA_schizo=ompi"};
  if (!Folder().empty()) {
    for (const char* name : {"OMPI_MCA_btl_vader_backing_directory",
                             "OMPI_MCA_orte_tmpdir_base"}) {
      environment.push_back(absl::StrCat(name, "=", Folder()));
    }
  }
  for (char** entry = entries; entry != nullptr && *entry != nullptr; ++entry) {
    environment.push_back(*entry);
    std::free(*entry);
  }
  std::free(entries);
  return environment;
}

}  // namespace

absl::StatusOr<std::vector<std::vector<std::string>>> ServePmix(int ranks) {
  static int jobs = 0;
  ASSIGN_OR_RETURN(const PmixApi* const pmix, Server());
  const std::string job = absl::StrCat("rankwise.", getpid(), ".", ++jobs);
  Facts facts = FactsOfJob(*pmix, ranks);
  RETURN_IF_ERROR(
      Await("PMIx_server_register_nspace", [&](auto tell, void* promise) {
        return pmix->PMIx_server_register_nspace(
            job.c_str(), ranks, facts.data(), facts.size(), tell, promise);
      }));
  std::vector<std::vector<std::string>> environments;
  for (int rank = 0; rank < ranks; ++rank) {
    ASSIGN_OR_RETURN(environments.emplace_back(), AddRank(*pmix, job, rank));
  }
  return environments;
}

}  // namespace rankwise
