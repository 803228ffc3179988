-- Ask taut's agent for a smaller request at submission; written by `taut slurm files`.
-- The job stands as asked unless a whole, sound answer comes in time. Runs on Lua 5.1 to 5.4; needs LuaSocket.

local SOCKET = "@SOCKET@"   -- the agent's Unix socket
local DEADLINE_S = 0.5      -- for connecting, sending and receiving together
local MOST_BYTES = 4096     -- of an answer
local MOST_TEXT = 256       -- characters of each text that is sent
local MOST_SCRIPT = 65536   -- characters of a script that are searched for srun
local FAILURES, REST_S = 3, 5   -- after 3 failures in a row, ask nothing for 5 s

local has_socket, socket = pcall(require, "socket")
local has_unix, unix = pcall(require, "socket.unix")
local failed_in_a_row, rests_until_s = 0, 0
local lost = 0   -- submissions without an answer since the last one; told to the agent, which counts them

local NUMBERS = {
  "user_id", "cpus_per_task", "num_tasks", "min_cpus", "pn_min_cpus", "min_nodes", "min_mem_per_node",
  "min_mem_per_cpu", "shared", "het_job_offset", "sockets_per_node", "cores_per_socket",
  "threads_per_core",
}
local TEXTS = {
  "user_name", "name", "account", "partition", "comment", "features", "tres_per_node", "tres_per_job",
  "tres_per_task", "tres_per_socket", "mem_per_tres", "cpus_per_tres",
}
local STEP_OPTIONS = {   -- of srun: CPUs, memory or numbers of tasks of its own
  "%-%-cpus%-per%-task[= ]+[%w$\"']", "%s%-c[= ]*[%d$\"']", "%-%-mem", "%-%-exact", "%-%-ntasks", "%s%-n[= ]*[%d$\"']",
}
local function set(words)
  local found = {}
  for word in string.gmatch(words, "%S+") do found[word] = true end
  return found
end
local BEFORE = set("if then else elif while until do ! time exec nohup env")   -- what may stand before a command
local PLAIN = set(   -- commands that start no steps of Slurm's; a Python program that calls srun cannot be seen
  ": [ awk basename break cat cd conda continue cp cut date declare df dirname done du echo esac exit export false fi "
  .. "for free grep gunzip gzip head hostname id julia kill ln local ls mkdir module mv nproc nvidia-smi popd printenv "
  .. "printf ps pushd pwd read readonly return rm rsync Rscript sed seq set shift sleep sort tail tar tee test torchrun "
  .. "touch tr trap true ulimit umask uname uniq unset wait wc which xz zcat")
local AMOUNTS = { "cpus_per_task", "min_cpus", "pn_min_cpus", "min_mem_per_node", "min_mem_per_cpu" }

-- Slurm marks numbers that were not given by the largest two values of their width.
local function given(value)
  return type(value) == "number" and value ~= 65534 and value ~= 65535 and value < 4294967294
end

local function one_line(text)
  local cut = string.sub(text, 1, MOST_TEXT)
  return (string.gsub(cut, "[%c%%]", function(c) return string.format("%%%02X", string.byte(c)) end))
end

-- Return an iterator of a script's commands, in which ' stands for each quoted text; whether some of it cannot be seen;
-- and whether quoted text names srun.
local function commands_of(script)
  local text = string.gsub("\n" .. string.gsub(script, "\\\n", " "), "\"?%$[{]?SLURM_CPUS_PER_TASK[}]?\"?", "@")
  text = string.gsub(string.gsub(text, "\n%s*#[^\n]*", "\n"), "%s#[^\n]*", "\n")
  local unseen, own = string.find(text, "<<", 1, true), nil
  local function mark(inner)
    unseen = unseen or string.find(inner, "$(", 1, true) or string.find(inner, "`", 1, true)
    own = own or string.find(inner, "srun", 1, true)
    return "\1"
  end
  text = string.gsub(string.gsub(text, '"[^"]*"', mark), "'[^']*'", mark)
  unseen = unseen or string.find(text, "[\"']")   -- an open quotation
  return string.gmatch(string.gsub(text, "\1", "'"), "[^\n;&|(){}`]+"), unseen, own
end

-- What a script's steps of srun ask for: "own" if CPUs, memory or tasks of their own (such a step would not fit into a
-- smaller job), "unseen" if one of its commands may start steps of its own, nil if neither.
local function steps_of(script)
  if type(script) ~= "string" then return nil end
  if #script > MOST_SCRIPT then return "own" end
  local shell = string.match(script, "^#![^\n]*") or "#!/bin/sh"
  local commands, unseen, own = commands_of(script)
  unseen = unseen or not string.find(shell .. " ", "[/ ]%a*sh%s")
  for command in commands do
    local words = string.gsub(command, "^%s+", "")
    repeat   -- leave out what stands before a command: keywords and variables
      local first, rest = string.match(words, "^(%S+)%s*(.*)$")
      local skipped = first and (BEFORE[first] or string.find(first, "^[%w_]+=") and not string.find(first, "srun"))
      if skipped then words = rest end
    until not skipped
    local name = string.match(string.match(words, "^%S*"), "[^/]*$")
    if name == "srun" then
      for _, pattern in ipairs(STEP_OPTIONS) do own = own or string.find(words, pattern) end
    elseif string.find(words, "srun", 1, true) then
      own = true
    elseif name == "source" or name == "." then
      unseen = unseen or not string.find(words, "/bin/activate%s*$")
    elseif name ~= "" then
      unseen = unseen or not (PLAIN[name] or string.find(name, "^python[%d.]*$"))
    end
  end
  return own and "own" or unseen and "unseen" or nil
end

local function request_of(job, parts)
  local lines = {}
  local function add(key, value) lines[#lines + 1] = key .. "=" .. value end
  for _, name in ipairs(NUMBERS) do
    local value = job[name]
    if given(value) then add(name, string.format("%.0f", value)) end
  end
  for _, name in ipairs(TEXTS) do
    local value = job[name]
    if type(value) == "string" and value ~= "" then add(name, one_line(value)) end
  end
  if job.account == nil and job.default_account ~= nil then add("account", one_line(job.default_account)) end
  if job.partition == nil then
    for name, part in pairs(parts) do
      if part.flag_default == 1 then add("partition", one_line(name)) end
    end
  end
  if job.script ~= nil then add("batch", 1) end
  local steps = steps_of(job.script)
  if steps then add("steps_" .. steps, 1) end
  if lost > 0 then add("lost", lost) end
  return table.concat(lines, "\n") .. "\n\n"
end

local function exchange(text)
  local ends = socket.gettime() + DEADLINE_S
  local agent = (type(unix) == "table" and (unix.stream or unix.tcp) or unix)()
  local function left()   -- within bounds also if the clock is set
    return math.max(0.001, math.min(DEADLINE_S, ends - socket.gettime()))
  end
  agent:settimeout(left(), "t")
  local done, why = agent:connect(SOCKET)
  if done then
    agent:settimeout(left(), "t")
    done, why = agent:send(text)
  end
  local answer, partial
  if done then
    agent:settimeout(left(), "t")
    answer, why, partial = agent:receive(MOST_BYTES)   -- the agent closes, so a sound answer is the partial one
  end
  agent:close()
  if not done then error("cannot reach the agent: " .. tostring(why), 0) end
  if answer then error("the answer is longer than " .. MOST_BYTES .. " bytes", 0) end
  if why ~= "closed" then error("no whole answer: " .. tostring(why), 0) end
  return partial
end

local function whole(text)
  if not string.find(text, "^%d+$") or #text > 15 then return nil end
  return tonumber(text)
end

-- Raise an error if an answer changes a job's CPUs in one field and not in the others, or by another factor.
local function check_cpus(found, job)
  if not (found.cpus_per_task or found.min_cpus or found.pn_min_cpus) then return end
  local each, all = whole(found.cpus_per_task or ""), whole(found.min_cpus or "")
  local agree = each and all and each * job.min_cpus == all * job.cpus_per_task
  if not agree or (found.pn_min_cpus or found.cpus_per_task) ~= found.cpus_per_task then
    error("its numbers of CPUs do not agree", 0)
  end
end

-- Return the changed fields of an answer; an error if it is cut off, or asks for nothing or for more than the job.
local function changes_of(answer, job)
  local found = {}
  for line in string.gmatch(answer, "[^\n]+") do
    local key, value = string.match(line, "^([a-z_]+)=(.*)$")
    if key == nil then error("a line without key=value", 0) end
    found[key] = value
  end
  if found["end"] ~= "1" then error("the answer is cut off", 0) end
  local changes = {}
  for _, name in ipairs(AMOUNTS) do
    if found[name] ~= nil then
      local amount, asked = whole(found[name]), job[name]
      if amount == nil or amount < 1 or not given(asked) or amount > asked then
        error(name .. "=" .. string.sub(found[name], 1, 40) .. " for a request of " .. tostring(asked), 0)
      end
      changes[#changes + 1] = { name, amount, asked }
    end
  end
  check_cpus(found, job)
  return changes, found.admin_comment, found.message
end

local function apply(job, changes, comment)
  local done = 0
  local fine, why = pcall(function()
    for i, change in ipairs(changes) do
      done = i
      job[change[1]] = change[2]
    end
    if comment ~= nil then
      local before = job.admin_comment
      job.admin_comment = (before ~= nil and before ~= "") and (before .. "; " .. comment) or comment
    end
  end)
  if not fine then
    for i = 1, done do pcall(function() job[changes[i][1]] = changes[i][3] end) end
    error(why, 0)
  end
end

local function advise(job, parts)
  if not (has_socket and has_unix) then error("LuaSocket is not installed", 0) end
  local changes, comment, message = changes_of(exchange(request_of(job, parts)), job)
  apply(job, changes, comment)
  if message ~= nil then slurm.log_user("%s", message) end
end

function slurm_job_submit(job_desc, part_list, submit_uid)
  local now = has_socket and socket.gettime() or 0
  if now < rests_until_s and rests_until_s - now <= REST_S then
    lost = lost + 1
    return slurm.SUCCESS
  end
  local fine, why = pcall(advise, job_desc, part_list)
  if fine then
    failed_in_a_row, lost = 0, 0
  else
    failed_in_a_row, lost = failed_in_a_row + 1, lost + 1
    if failed_in_a_row >= FAILURES then
      rests_until_s = (has_socket and socket.gettime() or 0) + REST_S
    end
    pcall(slurm.log_info, "%s", "taut: the job stands as asked: " .. tostring(why))
  end
  return slurm.SUCCESS
end

-- Slurm refuses a script without this function; a site's own, defined before this file is loaded, stays.
slurm_job_modify = slurm_job_modify or function(job_desc, job_rec, part_list, modify_uid)
  return slurm.SUCCESS
end

slurm.log_info("%s", "taut: asks " .. SOCKET)
return slurm.SUCCESS
